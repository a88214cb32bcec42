# The traces cbq-ancestor-only and cbq-ancestor-only-flat, with ns-2.35 (Debian's package ns2):
#   ns ancestor-only.tcl agencies OUT.tr
#   ns ancestor-only.tcl flat OUT.tr
# Below a root of 90 % of 1.5 Mb/s. Lines of OUT.tr that begin with "+" are arrivals, with "-"
# departures: field 2 is the time, 6 the bytes, 8 the class. ns-2 serves lower priorities first.
set case [lindex $argv 0]
set out [lindex $argv 1]
# Trees: name parent share priority level. Sources: class bytes bit/s, then on and off times.
if {$case == "agencies"} {
  set end 40.1
  set tree {{root none 0.9 8 3} {A root 0.65 8 2} {B root 0.25 8 2}
    {vA A 0.25 1 1} {dA A 0.4 2 1} {vB B 0.1 1 1} {dB B 0.15 2 1}}
  set sources {{vA 190 1.52e6 0 12 16 36} {dA 1000 1.6e6 0 20 24 41}
    {vB 500 2e6 0 4 8 36} {dB 1000 1.6e6 0 28 32 41}}
} else {
  set end 28.1
  set tree {{root none 0.9 8 2} {a root 0.03 1 1} {v root 0.32 1 1} {d root 0.55 2 1}}
  set sources {{a 190 1.52e6 0 4 8 12 16 20 24 28} {v 500 2e6 0 8 12 16 20 28} {d 1000 1.6e6 0 12 16 28}}
}
set ns [new Simulator]
set r1 [$ns node]
set r2 [$ns node]
$ns simplex-link $r1 $r2 1.5Mb 5ms CBQ/WRR
$ns simplex-link $r2 $r1 1.5Mb 5ms DropTail
set cbq [$ns link $r1 $r2]
foreach row $tree {
  foreach {name parent share priority level} $row {}
  set class [new CBQClass]
  if {$parent == "none"} {
    set above none
    set borrows 0
  } else {
    set above $classes($parent)
    set borrows true
  }
  $class setparams $above $borrows $share auto $priority $level 0
  if {$level == 1} {
    set queue [new Queue/DropTail]
    $queue set limit_ 20
    $class install-queue $queue
  }
  $cbq insert $class
  set classes($name) $class
}
[$cbq queue] algorithm ancestor-only
set flow 0
foreach row $sources {
  incr flow
  foreach {name bytes bps} [lrange $row 0 2] {}
  $cbq bind $classes($name) $flow
  set s [$ns node]
  set d [$ns node]
  $ns duplex-link $s $r1 10Mb 5ms DropTail
  $ns duplex-link $r2 $d 10Mb 5ms DropTail
  set udp [new Agent/UDP]
  $udp set packetSize_ $bytes
  $udp set fid_ $flow
  set sink [new Agent/Null]
  $ns attach-agent $s $udp
  $ns attach-agent $d $sink
  $ns connect $udp $sink
  set cbr [new Application/Traffic/CBR]
  $cbr set packetSize_ $bytes
  $cbr set interval_ [expr $bytes * 8.0 / $bps]
  $cbr set random_ 0
  $cbr attach-agent $udp
  foreach {on off} [lrange $row 3 end] {
    $ns at $on "$cbr start"
    $ns at $off "$cbr stop"
  }
}
$ns trace-queue $r1 $r2 [open $out w]
$ns at $end "exit 0"
$ns run
