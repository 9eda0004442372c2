<?php
// Children, streams, a database in memory, a generator.
$child = proc_open(['sh', '-c', 'cat; exit 5'], [['pipe', 'r'], ['pipe', 'w']], $pipes);
fwrite($pipes[0], "through a child\n");
fclose($pipes[0]);
echo stream_get_contents($pipes[1]);
fclose($pipes[1]);
echo proc_close($child), "\n";
function numbers() { for ($i = 0; $i < 1000; $i++) yield $i; }
echo array_sum(iterator_to_array(numbers())), "\n";
file_put_contents('data.json', json_encode(['a' => [1, 2, 3]]));
echo json_decode(file_get_contents('data.json'), true)['a'][2], ' ', disk_free_space('.') > 0 ? 'space' : 'none', "\n";
