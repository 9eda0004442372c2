# A pipe to another program, a server and its client in one event loop.
puts [exec sort -n << "3\n1\n2"]
proc accept {channel args} { puts $channel "hello [string trim [gets $channel]]"; close $channel }
set server [socket -server accept 0]
set client [socket localhost [lindex [fconfigure $server -sockname] 2]]
fconfigure $client -buffering line
puts $client me
fileevent $client readable { puts [gets $client]; set done 1 }
vwait done
