# Children, pipes, signals, and files that are locked.
use strict; use warnings; use Fcntl ':flock'; use POSIX ':sys_wait_h';
my ($sum, %left) = (0);
$SIG{CHLD} = sub { };
for my $n (1 .. 8) {
	pipe(my $read, my $write) or die;
	my $pid = fork // die;
	if (!$pid) { close $read; print $write $n * $n; close $write; POSIX::_exit($n) }
	close $write; $left{$pid} = $n;
	$sum += <$read>;
}
while ((my $pid = waitpid(-1, 0)) > 0) { die 'wrong status' if $? >> 8 != $left{$pid} }
print "sum $sum\n";
open(my $file, '>', 'lock') or die; flock($file, LOCK_EX) or die;
my $other = fork // die;
if (!$other) { open(my $f, '>', 'lock') or die; exit(flock($f, LOCK_EX | LOCK_NB) ? 1 : 0) }
waitpid($other, 0);
print 'locked out: ', ($? == 0 ? 'yes' : 'no'), "\n";
local $SIG{ALRM} = sub { die "alarm\n" };
eval { alarm 1; select(undef, undef, undef, 30); };
print $@;
