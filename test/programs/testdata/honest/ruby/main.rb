# Threads, processes, pipes, and what at_exit prints.
require 'etc'
require 'socket'
at_exit { puts 'at exit' }
puts Etc.nprocessors >= 1
sums = Etc.nprocessors.times.map { |first| Thread.new { (first...100_000).step(Etc.nprocessors).sum } }
puts sums.sum(&:value)
read, write = IO.pipe
pid = fork { read.close; write.puts 'from a child'; exit! 4 }
write.close
puts read.read
Process.wait pid
puts $?.exitstatus
server = TCPServer.new('localhost', 0)
answer = Thread.new { c = server.accept; c.puts c.gets.upcase; c.close }
client = TCPSocket.new('localhost', server.addr[1])
client.puts 'hello'
puts client.gets
answer.join
