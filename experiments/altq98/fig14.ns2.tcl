# The tree and timeline of altq98-fig14 in ns-2.35 (Debian's package ns2), with its own CBQ and TCP:
#   ns fig14.ns2.tcl top-level      (or formal, ancestor-only)
# writes top-level.tr; lines that begin with "-" are packets that leave the queue: field 2 is the
# time, 6 the bytes, 8 the flow (10 c0, 11 c1, 13 c3, 14 c4). ns-2 serves lower numbers first.
set algorithm [lindex $argv 0]
set ns [new Simulator]
set r1 [$ns node]
set r2 [$ns node]
foreach n {0 1 3 4} {
    set source($n) [$ns node]
    set sink($n) [$ns node]
    $ns duplex-link $source($n) $r1 1000Mb 0.5ms DropTail
    $ns duplex-link $r2 $sink($n) 1000Mb 0.01ms DropTail
    $ns queue-limit $source($n) $r1 5000
}
$ns simplex-link $r1 $r2 45Mb 1ms CBQ/WRR
$ns simplex-link $r2 $r1 45Mb 1ms DropTail

set cbq [$ns link $r1 $r2]
proc class {parent borrows share priority level} {
    global cbq
    set class [new CBQClass]
    $class setparams $parent $borrows $share auto $priority $level 0
    if {$level == 1} {
        set queue [new Queue/DropTail]
        $queue set limit_ 50
        $class install-queue $queue
    }
    $cbq insert $class
    return $class
}
set root [class none 0 1.0 8 3]
set X [class $root true 0.58 8 2]
set Y [class $root true 0.38 8 2]
set classes(20) [class $root true 0.04 2 1]
set classes(10) [class $X true 0.19 1 1]
set classes(11) [class $X true 0.39 2 1]
set classes(13) [class $Y true 0.29 2 1]
set classes(14) [class $Y true 0.09 1 1]
foreach flow {10 11 13 14 20} { $cbq bind $classes($flow) $flow }
[$cbq queue] algorithm $algorithm

foreach {n stop start} {0 12 17 1 5 10 3 18 22 4 32 37} {
    set tcp [new Agent/TCP/Sack1]
    set ack [new Agent/TCPSink/Sack1/DelAck]
    $tcp set packetSize_ 1460
    $tcp set window_ 1000
    $tcp set fid_ 1$n
    $ns attach-agent $source($n) $tcp
    $ns attach-agent $sink($n) $ack
    $ns connect $tcp $ack
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp
    $ns at 0.0$n "$ftp start"
    $ns at $stop "$ftp stop"
    $ns at $start "$ftp start"
}
$ns trace-queue $r1 $r2 [open $algorithm.tr w]
$ns at 45.0 "exit 0"
$ns run
