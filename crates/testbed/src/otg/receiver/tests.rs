use super::*;

/// What an analyser makes of these frames: sequence number and time of arrival, ns. Each was sent
/// 1,000 ns before its sequence number times 100.
fn taken(frames: &[(u32, i64)]) -> FlowReceived {
    let mut flow = Incoming::new();
    flow.expect(1, true, 0);
    for &(sequence, at) in frames {
        let sent = signature::sent(i64::from(sequence) * 100 - 1_000);
        flow.take(&Repr { trial: 1, stream: 0, sequence, sent }, 60, at);
    }
    flow.received(0)
}

#[test]
fn every_frame_counts_once_and_in_its_order() {
    let r = taken(&[(0, 0), (1, 150), (1, 160), (4, 400), (3, 450), (2, 500)]);
    assert_eq!((r.frames, r.bytes, r.duplicates, r.reordered), (5, 320, 1, 2));
    assert_eq!(r.times, [0, 500]);
    assert_eq!((r.latency.min, r.latency.max, r.latency.count), (1_000, 1_300, 5));
    // 1000, 1050, 1000, 1150, 1300 in the order of arrival.
    assert_eq!((r.jitter.count, r.jitter.sum), (4, 50 + 50 + 150 + 150));
    // RFC 3550, section A.8: in 16ths, rounded.
    let smoothed = [50, 50, 150, 150].iter().fold(0, |j, d| j + d - ((j + 8) >> 4));
    assert_eq!(r.rfc3550_jitter_ns, f64::from(smoothed) / 16.0);
}

#[test]
fn frames_far_behind_are_neither_new_nor_copies() {
    let window = WINDOW as u32;
    let r = taken(&[(0, 0), (window + 10, 1), (11, 2), (5, 3), (window + 10, 4), (11, 5)]);
    assert_eq!((r.frames, r.duplicates, r.too_late, r.reordered), (3, 2, 1, 1));
    // A leap over more than the window leaves no trace of what was before.
    let r = taken(&[(0, 0), (1, 1), (5 * window, 2), (4 * window + 1, 3)]);
    assert_eq!((r.frames, r.duplicates, r.too_late), (4, 0, 0));
}

#[test]
fn frames_of_others_and_of_before_are_distinguished() {
    let secret = Secret([1, 2]);
    let mut port = PortAnalyser::new(2, secret, 0);
    port.flows[1] = Some(Incoming::new());
    port.flows[1].as_mut().unwrap().expect(3, true, 0);
    let mut send = |trial, stream, change: fn(&mut Vec<u8>)| {
        let mut frame = vec![0; 60];
        Repr { trial, stream, sequence: 0, sent: 0 }.emit(&mut frame, &secret).unwrap();
        change(&mut frame);
        port.frame(&frame, 0);
    };
    send(3, 1, |_| {});
    send(2, 1, |_| {});
    send(3, 0, |_| {});
    send(3, 9, |_| {});
    send(3, 1, |f| f[50] ^= 1);
    send(3, 1, |f| f[42] = 0);
    let r = &port.report;
    assert_eq!((r.frames, r.bytes, r.stray, r.damaged), (6, 384, 3, 1));
    assert_eq!(r.whole, 4, "one of the flow and three strays");
    assert_eq!(port.flows[1].as_ref().unwrap().arrivals.received, 1);
}

#[test]
fn a_tag_that_is_added_on_the_way_does_no_harm() {
    let secret = Secret([1, 2]);
    let mut flow = Incoming::new();
    flow.expect(1, true, 0);
    let mut port = PortAnalyser::new(1, secret, 0);
    port.flows[0] = Some(flow);
    let mut frame = vec![0; 60];
    Repr { trial: 1, stream: 0, sequence: 0, sent: 0 }.emit(&mut frame, &secret).unwrap();
    frame.splice(12..12, [0x81, 0, 0, 5]);
    port.frame(&frame, 0);
    assert_eq!((port.report.damaged, port.flows[0].as_ref().unwrap().arrivals.received), (0, 1));
}
