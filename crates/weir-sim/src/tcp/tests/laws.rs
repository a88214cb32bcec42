//! Laws that the literature gives, and ns-2's figures: how much a flow gets.

use super::*;

fn goodput_segments(config: &Config, path: Path, seed: u64, seconds: u64) -> (f64, SenderStats) {
    let mss = f64::from(config.mss);
    let mut pair = Pair::new(config, path, seed);
    pair.write(u64::MAX);
    pair.run(seconds * SECOND);
    (pair.got[1] as f64 / mss / seconds as f64, pair.stats())
}

/// Mathis, Semke, Mahdavi, Ott (CCR 1997): rate = MSS/RTT · sqrt(3/2)/sqrt(p), for a receiver
/// whose acknowledgements let the window grow by a segment each round trip.
#[test]
fn mathis_law_under_random_loss() {
    for sack in [true, false] {
        for p in [0.000_5, 0.001, 0.003] {
            let (mut sum, seeds) = (0.0, 4);
            for seed in weir_seed::seeds(seeds) {
                let config = Config { sack, ..Config::default() };
                let path = Path { loss: p, ..Path::default() };
                sum += goodput_segments(&config, path, seed, 1000).0;
            }
            let (measured, law) = (sum / seeds as f64, (1.5f64 / p).sqrt() / 0.050);
            println!(
                "mathis sack={sack} p={p}: {measured:.0} segments/s, law {law:.0}, {:.3}",
                measured / law
            );
            assert!((measured / law - 1.0).abs() < 0.15, "sack {sack} p {p}: {measured} {law}");
            // Reversed: a sender that ignored half of the losses would be 1.41 times the law.
            assert!((measured * 2f64.sqrt() / law - 1.0).abs() > 0.15);
        }
    }
}

/// Padhye, Firoiu, Towsley, Kurose (SIGCOMM 1998), eq. 32 with b = 1: time-outs bend the curve
/// below Mathis' law where losses are many. Their p counts loss *indications* (section 3: fast
/// recoveries and time-outs) for each segment sent.
#[test]
fn padhye_shape_at_higher_loss() {
    let mut last = f64::MAX;
    for loss in [0.01f64, 0.03, 0.06, 0.1, 0.15] {
        let (mut sum, mut timeouts, mut indications, mut sent, seeds) = (0.0, 0, 0, 0, 4);
        for seed in weir_seed::seeds(seeds) {
            let mut pair = Pair::new(&Config::default(), Path { loss, ..Path::default() }, seed);
            pair.write(u64::MAX);
            pair.run(1000 * SECOND);
            sum += pair.got[1] as f64 / 1448.0 / 1000.0;
            timeouts += pair.stats().timeouts;
            indications += pair.stats().recoveries + pair.stats().timeouts;
            sent += pair.data_sent;
        }
        let (rtt, rto) = (0.050, 0.255);
        let (measured, p) = (sum / seeds as f64, indications as f64 / sent as f64);
        let waits = rto * (3.0 * (3.0 * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
        let law = 1.0 / (rtt * (2.0 * p / 3.0).sqrt() + waits);
        let mathis = (1.5 / p).sqrt() / rtt;
        println!("padhye {loss} p={p:.4}: {measured:.1}, law {law:.1}, mathis {mathis:.1}, {timeouts}");
        assert!((0.75..1.25).contains(&(measured / law)), "p {p}: {measured} {law}");
        assert!(measured / mathis < last, "further below Mathis' law as p grows");
        last = measured / mathis;
        assert!(timeouts > 0);
    }
    assert!(last < 0.6, "at high loss the square-root law no longer holds: {last}");
}

/// Reno that counts acknowledgements, as RFC 2581 allowed and ns-2 does: the law's `b`.
#[derive(Debug)]
struct CountsAcks(cc::Reno, u64);

impl cc::CongestionControl for CountsAcks {
    fn window(&self) -> u64 {
        self.0.window()
    }
    fn in_slow_start(&self) -> bool {
        self.0.in_slow_start()
    }
    fn on_ack(&mut self, acked: cc::Acked) {
        self.0.on_ack(cc::Acked { octets: acked.octets.min(self.1), ..acked });
    }
    fn on_congestion(&mut self, now: Instant, flight: u64) {
        self.0.on_congestion(now, flight);
    }
    fn on_timeout(&mut self, now: Instant, flight: u64, again: bool) {
        self.0.on_timeout(now, flight, again);
    }
    fn clamp(&mut self, octets: u64) {
        self.0.clamp(octets);
    }
}

/// Delayed acknowledgements and the law's `b`: acknowledgements are about half as many as segments,
/// yet the rate follows the law with b = 1, because the window grows by the octets acknowledged
/// (RFC 3465), as the kernel's Reno does. Linux 6.18 over the same path (50 ms, segments lost at
/// random) had 0.27 to 0.46 acknowledgements per segment at p = 0.003, 0.01 and 0.03, and 0.92 to 1.02
/// of the law with b = 1. A sender that counts acknowledgements follows b = 2.
#[test]
fn delayed_acknowledgements_do_not_slow_the_window() {
    let law = |p: f64, b: f64| {
        let waits = 0.255 * (3.0 * (3.0 * b * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
        1.0 / (0.050 * (2.0 * b * p / 3.0).sqrt() + waits)
    };
    let mss = u64::from(Config::default().mss);
    // (acknowledgements per segment, rate over the law with b = 1, and with b = 2)
    let measure = |loss: f64, delayed_ack: bool, counts_acks: bool| {
        let (mut rate, mut indications, mut sent, mut acks, seeds, seconds) = (0.0, 0, 0, 0, 3, 1000);
        for seed in weir_seed::seeds(seeds) {
            let config = Config { delayed_ack, ..Config::default() };
            let mut pair = Pair::new(&config, Path { loss, ..Path::default() }, seed);
            if counts_acks {
                let reno = cc::Reno::new(mss, 10 * mss, true);
                pair.ends[0].sender.set_control(Box::new(CountsAcks(reno, mss)));
            }
            pair.write(u64::MAX);
            pair.run(seconds * SECOND);
            rate += pair.got[1] as f64 / mss as f64 / seconds as f64 / seeds as f64;
            indications += pair.stats().recoveries + pair.stats().timeouts;
            (sent, acks) = (sent + pair.data_sent, acks + pair.ends[1].receiver.acks_sent());
        }
        let p = indications as f64 / sent as f64;
        let result = (acks as f64 / (sent as f64 * (1.0 - loss)), rate / law(p, 1.0), rate / law(p, 2.0));
        println!("p={loss} delayed={delayed_ack} counts acks={counts_acks}: {result:.3?}");
        result
    };
    for loss in [0.001, 0.003, 0.01, 0.03] {
        let (acks, b1, b2) = measure(loss, true, false);
        // Half; at once while there is a hole, and sixteen times after it.
        assert!((0.5..0.52 + 35.0 * loss).contains(&acks) && acks < 1.0, "p {loss}: {acks}");
        assert!((0.85..1.15).contains(&b1) && b2 > 1.2, "p {loss}: {b1} {b2}");
        // Without delay the rate is the same.
        let (all, same, _) = measure(loss, false, false);
        assert!((all - 1.0).abs() < 0.02 && (same / b1 - 1.0).abs() < 0.1, "p {loss}: {all} {same} {b1}");
        // Reversed: counting acknowledgements, the law with b = 2 holds and that with b = 1 does not.
        let (_, b1, b2) = measure(loss, true, true);
        assert!((0.85..1.2).contains(&b2) && b1 < 0.9, "p {loss}: {b1} {b2}");
    }
}

/// A queue of one packet: what a single Reno gets of the link. A window that halves at each loss
/// keeps the pipe 3/4 full where no queue evens it out. With delayed acknowledgements segments come
/// in pairs, and in threes when the window grows: the third finds the one place taken, although the
/// pipe is far from full, and the window halves then. With a second place, or an acknowledgement for
/// each segment, only a full pipe loses.
#[test]
fn a_queue_of_one_packet_loses_the_third_of_a_burst() {
    let used = |queue: u64, delayed_ack: bool| {
        let service = 1_230_400;
        let path = Path { service_ns: service, queue, ..Path::default() };
        let mut pair = Pair::new(&Config { delayed_ack, ..Config::default() }, path, 1);
        pair.write(u64::MAX);
        pair.run(300 * SECOND);
        let used = pair.got[1] as f64 / 1448.0 * service as f64 / 300e9;
        println!("queue {queue} delayed={delayed_ack}: {used:.3}, {:?}", pair.stats());
        used
    };
    let (one, two, single) = (used(1, true), used(2, true), used(1, false));
    assert!((0.05..0.6).contains(&one), "{one}");
    assert!((0.68..0.9).contains(&single), "{single}");
    assert!(two > one + 0.15, "{two} {one}");
    assert!(used(50, true) > 0.97, "a queue of the pipe's size keeps the link busy");
}

/// What ns-2.35 gives where both are asked the same: one flow without delayed acknowledgements,
/// 65 ms, segments lost at random. Segments a second, and time-outs for each segment lost.
#[test]
fn agrees_with_ns2_under_random_loss() {
    let newreno = [(0.01, 179.2, 0.020), (0.03, 93.6, 0.050), (0.06, 58.1, 0.101), (0.1, 37.0, 0.168)];
    let sack = [(0.01, 178.7, 0.010), (0.03, 92.0, 0.029), (0.06, 55.6, 0.081), (0.1, 35.3, 0.154)];
    for (sack, figures) in [(false, newreno), (true, sack)] {
        for (loss, rate, timeouts) in figures {
            let path = Path { loss, one_way_ns: 32_500_000, ..Path::default() };
            let config = Config { sack, delayed_ack: false, ..Config::default() };
            let (mut measured, mut expired, mut lost) = (0.0, 0, 0);
            for seed in weir_seed::seeds(3) {
                let mut pair = Pair::new(&config, Path { kill: Vec::new(), ..path }, seed);
                pair.write(u64::MAX);
                pair.run(1500 * SECOND);
                measured += pair.got[1] as f64 / 1448.0 / 1500.0 / 3.0;
                (expired, lost) = (expired + pair.stats().timeouts, lost + pair.dropped);
            }
            let expired = expired as f64 / lost as f64;
            println!(
                "ns-2 sack={sack} p={loss}: {measured:.1} and {rate}, time-outs {expired:.3} and {timeouts}"
            );
            assert!((measured / rate - 1.0).abs() < 0.05, "sack {sack} p {loss}: {measured} {rate}");
            assert!((expired - timeouts).abs() < 0.015, "sack {sack} p {loss}: {expired} {timeouts}");
        }
    }
}

/// One flow through a drop-tail queue: between W/2 and W the window grows by a segment a round
/// trip, so a tooth holds 3/8·W² segments, which the bottleneck serves one after the other.
#[test]
fn sawtooth_has_its_period() {
    let (service, queue) = (1_230_400, 50);
    let path = Path { service_ns: service, queue, ..Path::default() };
    let mut pair = Pair::new(&Config::default(), path, 1);
    pair.write(u64::MAX);
    pair.run(120 * SECOND);
    let teeth: Vec<u64> = pair.reductions.windows(2).map(|w| w[1] - w[0]).skip(2).collect();
    let mean = teeth.iter().sum::<u64>() as f64 / teeth.len() as f64;
    // Full pipe: what fits in the queue, in service, and in 50 ms of delay; one more is lost,
    // and the window grows by another until the sender hears of it.
    let w = queue as f64 + 3.0 + 50e6 / service as f64;
    let law = 3.0 / 8.0 * w * w * service as f64;
    println!("sawtooth: {} teeth of {:.3} s, law {:.3} s", teeth.len(), mean / 1e9, law / 1e9);
    assert!(teeth.len() > 15 && (mean / law - 1.0).abs() < 0.05, "{mean} {law}");
    assert_eq!(pair.stats().timeouts, 0);
    let used = pair.got[1] as f64 / 1448.0 * service as f64 / 120e9;
    assert!(used > 0.97, "the queue is large enough to keep the link busy: {used}");
}
