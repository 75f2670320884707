//! Traffic of real stacks: Linux TCP with requests and answers or in bulk, ping, and dig
//! against dnsmasq.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use sonde_lab::Host;
use sonde_sys::stream::set_congestion_control;

use super::net::Net;
use crate::process::Process;

/// What one connection does.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Requests, one after the other.
    pub rounds: usize,
    /// Bytes of each request, at least 8.
    pub request: usize,
    /// Bytes of each answer.
    pub answer: usize,
    /// The client's pause between an answer and the next request.
    pub pause: Duration,
}

/// Runs `connections` TCP connections at once, in IPv4 or IPv6, to their ends.
pub fn tcp(net: &Net, ipv6: bool, connections: usize, exchange: Exchange) {
    let address = SocketAddr::new(server_address(ipv6), 8080);
    let listener = net.hosts.server.inside(|| TcpListener::bind(address).unwrap()).unwrap();
    set_congestion_control(&listener, CONGESTION_CONTROL).unwrap();
    let server = std::thread::spawn(move || {
        let serve = |_| {
            let (stream, _) = listener.accept().unwrap();
            std::thread::spawn(move || serve(stream))
        };
        let threads: Vec<_> = (0..connections).map(serve).collect();
        join(threads);
    });
    let client = |_| {
        let host = net.hosts.client.clone();
        std::thread::spawn(move || {
            let stream = host.inside(|| TcpStream::connect_timeout(&address, LIMIT).unwrap());
            ask(stream.unwrap(), exchange);
        })
    };
    let clients: Vec<_> = (0..connections).map(client).collect();
    join(clients);
    server.join().unwrap();
}

/// The server's side: a request begins with its length and the answer's.
fn serve(mut stream: TcpStream) {
    prepare(&stream);
    let mut head = [0; 8];
    while stream.read_exact(&mut head).is_ok() {
        let [request, answer] = [&head[..4], &head[4..]]
            .map(|part| u32::from_be_bytes(part.try_into().unwrap()) as usize);
        let mut rest = vec![0; request - head.len()];
        stream.read_exact(&mut rest).unwrap();
        stream.write_all(&vec![b'a'; answer]).unwrap();
    }
}

fn ask(mut stream: TcpStream, exchange: Exchange) {
    prepare(&stream);
    let mut request = vec![b'r'; exchange.request.max(8)];
    let length = (request.len() as u32).to_be_bytes();
    request[..4].copy_from_slice(&length);
    request[4..8].copy_from_slice(&(exchange.answer as u32).to_be_bytes());
    let mut answer = vec![0; exchange.answer];
    for _ in 0..exchange.rounds {
        stream.write_all(&request).unwrap();
        stream.read_exact(&mut answer).unwrap();
        std::thread::sleep(exchange.pause);
    }
}

fn prepare(stream: &TcpStream) {
    set_congestion_control(stream, CONGESTION_CONTROL).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Pings the server, 50 times a second; all must come back. Returns the shortest round
/// trip that ping saw, ns.
pub fn ping(net: &Net, ipv6: bool, count: u32) -> i64 {
    let (count, address) = (count.to_string(), server_address(ipv6).to_string());
    let out = net.hosts.client.run(&["ping", "-n", "-i", "0.02", "-c", &count, &address]).unwrap();
    assert!(out.contains(" 0% packet loss"), "{out}");
    let minimum = out.split_once("rtt min/avg/max/mdev = ").unwrap().1.split('/').next().unwrap();
    (minimum.parse::<f64>().unwrap() * 1e6) as i64
}

pub struct DnsServer(#[expect(dead_code, reason = "held, not read")] Process);

impl DnsServer {
    /// Starts it on the server's addresses; it knows every name under `sonde.test`.
    pub fn start(net: &Net) -> DnsServer {
        let mut command = net.hosts.server.command("dnsmasq");
        command.args(["--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts"]);
        command.args(["--user=root", "--pid-file=", "--address=/sonde.test/192.0.2.7"]);
        let mut process = Process::start(command);
        process.until("dnsmasq", |p| p.err().iter().any(|l| l.contains("started")));
        DnsServer(process)
    }
}

/// Asks for `count` names, one after the other.
pub fn dig(net: &Net, over_tcp: bool, count: usize) {
    let transport = if over_tcp { "+tcp" } else { "+notcp" };
    let server = format!("@{}", server_address(false));
    for n in 0..count {
        let name = format!("host{n}.sonde.test");
        let answer = run_dig(&net.hosts.client, &[&server, transport, &name]);
        assert!(answer.contains("192.0.2.7"), "{answer}");
    }
}

fn run_dig(host: &Host, arguments: &[&str]) -> String {
    host.run(&[&["dig", "+tries=1", "+time=5", "+short"], arguments].concat()).unwrap()
}

fn server_address(ipv6: bool) -> IpAddr {
    if ipv6 { "fd00:1::2".parse().unwrap() } else { "10.1.0.2".parse().unwrap() }
}

/// The kernel's own choice differs from machine to machine.
const CONGESTION_CONTROL: &str = "cubic";
/// No step of a connection takes longer.
const LIMIT: Duration = Duration::from_secs(20);
