//! The spool: what waits on disk, through ends and kills.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use super::collector::{accept, rest, silent_port, unread};
use super::packets::{flow_index, flows, pcap};
use super::support::{Exported, Folder, start};
use crate::process;

/// The segments of all spools in `folder`, the oldest first.
fn segments(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .map(|e| e.unwrap().path())
        .flat_map(|p| if p.is_dir() { segments(&p) } else { vec![p] })
        .filter(|p| p.extension().is_some_and(|e| e == "ipfix"))
        .collect();
    found.sort();
    found
}

fn indices(exported: &Exported) -> Vec<u32> {
    let mut indices: Vec<u32> = exported.flows.iter().map(flow_index).collect();
    indices.sort_unstable();
    indices
}

#[test]
fn the_next_run_sends_what_waited_and_then_its_own() {
    let folder = Folder::new();
    let capture = folder.write("a.pcap", &pcap(&flows(3_000), 1, false));
    let spool = folder.0.join("spool");
    let address = silent_port();
    let line = format!("{capture} --export tcp://{address} --spool {} -q", spool.display());
    let ended = start(&line).end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains("wait in the spool"), "{}", ended.err);
    let waiting = segments(&spool);
    assert_eq!(waiting.len(), 1);
    let exported = Exported::of(&std::fs::read(&waiting[0]).unwrap());
    assert!(
        exported.is_whole && indices(&exported).into_iter().eq(0..3_000),
        "a readable IPFIX file"
    );

    let listener = TcpListener::bind(address).unwrap();
    let run = start(&line);
    // The sequence numbers of each run begin anew, and so do connections.
    for _ in 0..2 {
        let exported = Exported::of(&rest(&mut accept(&listener)));
        assert!(exported.is_whole && indices(&exported).into_iter().eq(0..3_000));
    }
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(segments(&spool).len(), 0, "nothing stays that was delivered");
}

#[test]
fn a_kill_leaves_a_spool_that_can_be_read_and_sent() {
    let folder = Folder::new();
    let count = 200_000;
    let capture = folder.write("a.pcap", &pcap(&flows(count), 1, false));
    let spool = folder.0.join("spool");
    let address = silent_port();
    let line = format!("{capture} --export tcp://{address} --spool {} -q", spool.display());
    let run = start(&line);
    let size = || segments(&spool).iter().map(|p| p.metadata().unwrap().len()).sum::<u64>();
    process::until("some megabytes to wait", || size() > 3_000_000);
    run.signal("KILL");
    assert_eq!(run.end().code, 128 + 9);
    // What the kernel had of the last write may be less than a message.
    let mut left: Vec<u32> = Vec::new();
    for path in segments(&spool) {
        let bytes = std::fs::read(path).unwrap();
        left.extend(indices(&Exported::of(&bytes[..whole(&bytes)])));
    }
    assert!(left.len() > 10_000);
    let listener = TcpListener::bind(address).unwrap();
    let run = start(&line);
    let first = Exported::of(&rest(&mut accept(&listener)));
    assert!(first.is_whole);
    left.sort_unstable();
    assert_eq!(indices(&first), left);
    let second = Exported::of(&rest(&mut accept(&listener)));
    assert!(second.is_whole && indices(&second).into_iter().eq(0..count));
    assert_eq!(run.end().code, 0);
}

#[test]
fn after_a_kill_only_what_was_not_confirmed_comes_twice() {
    let folder = Folder::new();
    let count = 300_000;
    let capture = folder.write("a.pcap", &pcap(&flows(count), 1, false));
    let spool = folder.0.join("spool");
    let address = silent_port();
    let line = format!("{capture} --export tcp://{address} --spool {} -q", spool.display());
    assert_eq!(start(&line).end().code, 0);
    let segment = std::fs::read(&segments(&spool)[0]).unwrap();

    // A collector that takes what its kernel has room for, and reads nothing.
    let listener = TcpListener::bind(address).unwrap();
    let run = start(&line);
    let mut stream = accept(&listener);
    let position = spool_position(&spool);
    let mut before = 0;
    process::until("all that arrived to be noted", || {
        let arrived = unread(&stream);
        let is_still = arrived > 0 && arrived == before;
        before = arrived;
        is_still && noted(&position) == whole(&segment[..arrived]) as u64
    });
    let confirmed = noted(&position) as usize;
    run.signal("KILL");
    assert_eq!(run.end().code, 128 + 9);
    // The kernel still sends what it had taken.
    let first = rest(&mut stream);
    let first = &first[..whole(&first)];
    assert_eq!(first, &segment[..first.len()], "as it was kept");
    let twice = first.len() - confirmed;
    println!("{confirmed} octets were confirmed, {twice} came twice");
    assert!(twice <= 512 << 10, "{twice}");

    let run = start(&line);
    let second = rest(&mut accept(&listener));
    // The sequence numbers of a connection begin at 0: only the records are compared.
    let (a, b) = (Exported::of(&segment[..confirmed]), Exported::of(&second));
    assert!(b.is_whole);
    let mut all = indices(&a);
    all.extend(indices(&b));
    all.sort_unstable();
    assert!(all.into_iter().eq(0..count), "what was confirmed does not come again");
    assert!(Exported::of(&rest(&mut accept(&listener))).is_whole);
    assert_eq!(run.end().code, 0);
}

/// The file that says how far the spool's oldest segment was delivered.
fn spool_position(spool: &Path) -> PathBuf {
    let folders: Vec<_> = std::fs::read_dir(spool).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(folders.len(), 1);
    folders[0].join("delivered")
}

fn noted(position: &Path) -> u64 {
    let text = std::fs::read_to_string(position).unwrap();
    text.split_whitespace().nth(1).map_or(0, |octets| octets.parse().unwrap())
}

/// Octets of whole messages.
fn whole(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + 16) {
        let end = at + usize::from(u16::from_be_bytes([header[2], header[3]]));
        if end > bytes.len() {
            break;
        }
        at = end;
    }
    at
}

#[test]
fn the_spool_is_bounded_and_what_it_cannot_hold_is_counted() {
    let folder = Folder::new();
    // Of about 60 octets each; the memory holds 64 MB.
    let count = 1_500_000;
    let capture = folder.write("a.pcap", &pcap(&flows(count), 1, false));
    let spool = folder.0.join("spool");
    let line = format!(
        "{capture} --export tcp://{} --spool {} --spool-max 1M --json --flows 2000000",
        silent_port(),
        spool.display()
    );
    let ended = start(&line).end();
    assert_eq!(ended.code, 4, "{}", ended.err);
    assert!(ended.err.contains("--spool-max"), "{}", ended.err);
    let paths = segments(&spool);
    let bytes: Vec<u8> = paths.iter().flat_map(|p| std::fs::read(p).unwrap()).collect();
    assert!(bytes.len() <= 1 << 20, "{}", bytes.len());
    let exported = Exported::of(&bytes);
    assert!(exported.is_whole);
    let run = super::support::run_of(&ended.out);
    assert_eq!(run.counters["records_lost"] + exported.flows.len() as u64, u64::from(count));
}

#[test]
fn a_spool_has_one_run_at_a_time() {
    let folder = Folder::new();
    let capture = folder.write("a.pcap", &pcap(&flows(10), 1, false));
    let line = format!(
        "{capture} --export tcp://{} --spool {} -q",
        silent_port(),
        folder.0.join("spool").display()
    );
    let mut first = start(&line);
    first.until("the refusal", |p| p.err().iter().any(|l| l.contains("trying again")));
    let second = start(&line).end();
    assert_eq!(second.code, 3, "{}", second.err);
    assert!(second.err.contains("in use by another run"), "{}", second.err);
    assert_eq!(first.end().code, 0);
}
