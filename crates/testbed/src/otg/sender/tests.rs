use std::sync::{Mutex, mpsc};

use serde_json::json;
use sonde_port::{Caps, PortError, RxBurst, TxBurst, TxDesc};
use sonde_server::otg::config::Flow;

use sonde_wire::StampSource;

use super::*;
use crate::otg::allowed::Allowed;
use crate::otg::flow::PortsView;

/// Keeps what it is given.
struct Kept {
    memory: Vec<u8>,
    free: Vec<TxDesc>,
    used: usize,
    frames: Arc<Mutex<Vec<Vec<u8>>>>,
    caps: Caps,
}

impl Kept {
    fn new(frames: &Arc<Mutex<Vec<Vec<u8>>>>) -> Kept {
        let slot = |i: usize| TxDesc { offset: i * 128, capacity: 128, ..TxDesc::default() };
        Kept {
            memory: vec![0; 256],
            free: (0..2).map(slot).collect(),
            used: 0,
            frames: frames.clone(),
            caps: Caps {
                engine: "kept",
                mode: String::new(),
                rx_stamp: StampSource::User,
                tx_stamp: StampSource::User,
                max_frame: 128,
                link_layer: true,
            },
        }
    }
}

impl Port for Kept {
    fn rx(&mut self) -> Result<RxBurst<'_>, PortError> {
        Ok(RxBurst::new(&mut self.memory, &mut [], &[]))
    }
    fn tx(&mut self) -> TxBurst<'_> {
        TxBurst::new(&mut self.memory, &mut self.free, &mut self.used)
    }
    fn flush(&mut self) -> Result<(), PortError> {
        let used = self.free.iter().take(std::mem::take(&mut self.used));
        let frame = |d: &TxDesc| self.memory[d.offset..d.offset + d.len].to_vec();
        self.frames.lock().unwrap().extend(used.map(frame));
        Ok(())
    }
    fn wait(&mut self, _: Time) -> Result<(), PortError> {
        Ok(())
    }
    fn now(&self) -> Time {
        tai_now()
    }
    fn caps(&self) -> &Caps {
        &self.caps
    }
    fn stats(&mut self) -> PortStats {
        PortStats::default()
    }
}

fn plan(duration: serde_json::Value) -> Arc<FlowPlan> {
    let flow: Flow = serde_json::from_value(json!({
        "name": "f", "tx_rx": { "port": { "tx_name": "a", "rx_names": ["b"] } },
        "rate": { "pps": 1000 }, "duration": duration, "metrics": { "enable": true },
    }))
    .unwrap();
    plan_of(&flow)
}

fn plan_of(flow: &Flow) -> Arc<FlowPlan> {
    let names = ["a", "b"].map(String::from);
    let ports =
        PortsView { names: &names, speeds: &[None, None], longest: &[1518, 1518], interfaces: &[] };
    let allowed = Allowed { prefixes: Vec::new(), types: Vec::new() };
    Arc::new(FlowPlan::new(flow, &ports, &allowed).unwrap())
}

/// When each frame is due, ns from the begin, until the flow ends.
fn due(duration: serde_json::Value, most: usize) -> Vec<i64> {
    let mut flow = Outgoing::new(0, plan(duration));
    flow.begin(0, 1);
    let mut times = Vec::new();
    while !flow.ended() && times.len() < most {
        times.push(flow.due());
        flow.departed(60, 0);
    }
    times
}

#[test]
fn frames_are_due_by_rate_duration_delay_and_burst() {
    let ms = |list: &[i64]| list.iter().map(|t| t * 1_000_000).collect::<Vec<_>>();
    let three = json!({ "choice": "fixed_packets", "fixed_packets": {
        "packets": 3, "delay": { "choice": "microseconds", "microseconds": 5000 } } });
    assert_eq!(due(three, 9), ms(&[5, 6, 7]));
    let seconds = json!({ "choice": "fixed_seconds", "fixed_seconds": { "seconds": 0.004 } });
    assert_eq!(due(seconds, 9), ms(&[0, 1, 2, 3]));
    assert_eq!(due(json!({}), 4), ms(&[0, 1, 2, 3]));
    let bursts = json!({ "choice": "burst", "burst": { "bursts": 2, "packets": 2,
        "inter_burst_gap": { "choice": "nanoseconds", "nanoseconds": 10000000 } } });
    assert_eq!(due(bursts, 9), ms(&[0, 1, 12, 13]));
}

#[test]
fn flows_of_a_port_that_begin_together_do_not_send_in_lumps() {
    let of = |pps: u32| {
        let flow: Flow = serde_json::from_value(json!({
            "name": "f", "tx_rx": { "port": { "tx_name": "a", "rx_names": ["b"] } },
            "rate": { "pps": pps },
        }))
        .unwrap();
        plan_of(&flow)
    };
    // 100 flows of 100 frames a second and 50 of 40, mixed.
    let plans = (0..150).map(|i| if i % 3 == 2 { of(40) } else { of(100) });
    let mut sender = sender(plans);
    let which: Vec<(u16, u8)> = (0..150).map(|i| (i, 1)).collect();
    sender.stagger(&which, TransmitChange::Start);
    let mut times = Vec::new();
    for flow in &mut sender.flows {
        change_flow(flow, TransmitChange::Start, 1, 0);
        while flow.due() < 1_000_000_000 {
            times.push(flow.due());
            flow.departed(60, 0);
        }
    }
    times.sort_unstable();
    assert_eq!(times.len(), 100 * 100 + 50 * 40);
    // In no 100 us, in which one frame is due on the average, are there more than one of either
    // kind.
    let lump = times.iter().map(|&t| {
        times[times.partition_point(|&u| u < t)..].iter().take_while(|&&u| u < t + 99_000).count()
    });
    assert!(lump.clone().max() <= Some(2), "{:?}", lump.max());
    // A flow by itself begins when it is started.
    sender.stagger(&[(7, 2)], TransmitChange::Start);
    assert_eq!(sender.flows[7].phase, 0.0);
}

fn sender(plans: impl Iterator<Item = Arc<FlowPlan>>) -> PortSender {
    PortSender {
        flows: plans.enumerate().map(|(i, plan)| Outgoing::new(i as u16, plan)).collect(),
        due: BinaryHeap::new(),
        totals: [0; 2],
        marked: 0,
        secret: Secret([1, 2]),
        failed: None,
        put_off: PutOff::default(),
        senders: usize::MAX,
        preferred: None,
    }
}

#[test]
fn what_could_not_leave_in_time_does_not_leave_in_a_lump() {
    const MS: i64 = 1_000_000;
    // 10 flows of 1,000 frames a second: one is due each 100 us.
    let mut sender = sender((0..10).map(|_| plan(json!({}))));
    let mut port = Kept::new(&Arc::default());
    let (done, _acknowledged) = mpsc::channel();
    let which = (0..10).map(|i| (i, 1)).collect();
    sender.obey(SenderCommand::Change(which, TransmitChange::Start, done), &mut port);
    let mut buffer = [0; 128];
    let mut leave = |sender: &mut PortSender, now| {
        let mut frames = 0;
        while sender.write(now, &mut buffer).is_some() {
            frames += 1;
        }
        frames
    };
    let start = sender.due().unwrap();
    assert_eq!(leave(&mut sender, start), 1);
    // A stop of less than 1 ms is caught up.
    assert_eq!(leave(&mut sender, start + MS), 10);
    // 50 ms without a processor: all is put off, and no two flows meet.
    let back = start + 51 * MS;
    assert_eq!(leave(&mut sender, back), 1);
    let (mut frames, mut before) = (0, back);
    while sender.put_off.ns() > 0 {
        let due = sender.due().unwrap();
        assert_eq!(leave(&mut sender, due), 1);
        assert!((98_000..=100_000).contains(&(due - before)), "{}", due - before);
        (frames, before) = (frames + 1, due);
    }
    // A 64th sooner each time.
    assert!((64 * 490..64 * 510).contains(&frames), "{frames}");
    assert_eq!(sender.flows.iter().map(|f| f.sent.frames).sum::<u64>(), 12 + frames);
}

#[test]
fn a_change_does_what_the_model_says() {
    use TransmitChange::{Pause, Resume, Start, Stop};
    let mut flow = Outgoing::new(0, plan(json!({})));
    change_flow(&mut flow, Pause, 1, 0);
    assert_eq!(flow.sent.state, TransmitState::Stopped);
    change_flow(&mut flow, Start, 2, 1000);
    (0..5).for_each(|_| flow.departed(60, 0));
    change_flow(&mut flow, Pause, 3, 2000);
    let due = flow.due();
    change_flow(&mut flow, Resume, 4, 5000);
    // The pause is added; sequence, tag and counters go on.
    assert_eq!((flow.due(), flow.n, flow.tag, flow.sent.frames), (due + 3000, 5, 2, 5));
    change_flow(&mut flow, Stop, 5, 6000);
    assert_eq!((flow.sent.state, flow.sent.frames), (TransmitState::Stopped, 5));
    // A stopped one begins again, with its counters.
    change_flow(&mut flow, Resume, 6, 7000);
    assert_eq!((flow.n, flow.tag, flow.sent.frames), (0, 6, 5));
    change_flow(&mut flow, Start, 7, 8000);
    assert_eq!((flow.n, flow.sent.frames, flow.due()), (0, 0, 8000));
}

#[test]
fn the_thread_sends_exactly_what_it_is_asked_to() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let near = Kept::new(&kept);
    let three = json!({ "choice": "fixed_packets", "fixed_packets": { "packets": 3 } });
    let (orders, received) = mpsc::channel();
    let secret = Secret([1, 2]);
    let flow = plan(three);
    let thread =
        std::thread::spawn(move || run(Box::new(near), vec![(7, flow)], secret, 1, &received));
    let (done, acknowledged) = mpsc::channel();
    let carry_out = |tag| {
        let change = TransmitChange::Start;
        orders.send(SenderCommand::Change(vec![(7, tag)], change, done.clone())).unwrap();
        acknowledged.recv().unwrap();
        loop {
            let (to, answer) = mpsc::channel();
            orders.send(SenderCommand::Report(to)).unwrap();
            let report = answer.recv().unwrap();
            if report.flows[0].1.state == TransmitState::Stopped {
                break report;
            }
            std::thread::yield_now();
        }
    };
    let report = carry_out(9);
    assert_eq!((report.flows[0].0, report.flows[0].1.frames, report.flows[0].1.bytes), (7, 3, 192));
    assert_eq!(report.totals, [3, 192]);
    // A flow counts from its last start, its port from the first one.
    let report = carry_out(10);
    assert_eq!((report.flows[0].1.frames, report.flows[0].1.bytes), (3, 192));
    assert_eq!(report.totals, [6, 384]);
    drop(orders);
    thread.join().unwrap();
    let kept = kept.lock().unwrap();
    let sent: Vec<_> = kept
        .iter()
        .map(|frame| Repr::parse(frame, 60, &secret).unwrap())
        .map(|r| (r.trial, r.stream, r.sequence))
        .collect();
    let of = |tag| (0..3).map(move |n| (tag, 7, n));
    assert_eq!(sent, of(9).chain(of(10)).collect::<Vec<_>>());
}
