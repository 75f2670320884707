#!/usr/bin/env python3
"""Applications' first packets, made by their own programs, and what tshark reads in them.

    sudo PYTHON tests/golden/make_flow_apps.py     writes tests/golden/flow_apps/

Clients and servers talk to each other over the loopback of a network namespace of their
own, while tcpdump captures. The expectations are tshark's, but for JA4, which it does not
know: that is computed here, by its specification, from the lists that tshark reads.

The captures differ from run to run (keys, ports, times), so they are checked in and made
anew only on purpose. Needs openssl, curl, wget, ssh, dig, dnsmasq, tcpdump, tshark, and a
PYTHON with aioquic.
"""

import asyncio
import hashlib
import json
import os
import pathlib
import shutil
import smtplib
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

FOLDER = pathlib.Path(__file__).parent / "flow_apps"
HOST = "127.0.0.1"
NAME = "www.example.org"


def main():
    socket.setdefaulttimeout(10)
    if os.environ.get("SONDE_GOLDEN_INSIDE") is None:
        environment = {**os.environ, "SONDE_GOLDEN_INSIDE": "1"}
        command = ["unshare", "--net", sys.executable, __file__]
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)
    run("ip", "link", "set", "lo", "up")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={NAME}",
            "-keyout", "key.pem", "-out", "cert.pem", "-days", "2")
        for case in (tls, quic, http, dns, others):
            capture(case)


def run(*command, good=(0,), **options):
    done = subprocess.run(command, capture_output=True, check=False, timeout=20, **options)
    if done.returncode not in good:
        sys.exit(f"{command}: {done.returncode}\n{done.stderr.decode()}")
    return done.stdout.decode()


def capture(case):
    """Runs one case and writes what was captured, and what tshark says of it."""
    path = f"{case.__name__}.pcap"
    dump = subprocess.Popen(["tcpdump", "-i", "lo", "-U", "-B", "4096", "-w", path, "tcp or udp"],
                            stderr=subprocess.PIPE)
    while b"listening on" not in dump.stderr.readline():
        pass
    case()
    # The last packets are in the file when a packet sent after them is.
    for _ in range(200):
        send(9, b"the end")
        if b"the end" in pathlib.Path(path).read_bytes():
            break
        time.sleep(0.02)
    dump.terminate()
    dump.wait()
    flows = judge(path)
    shutil.copy(path, FOLDER / path)
    (FOLDER / f"{case.__name__}.json").write_text(json.dumps(flows, indent=1) + "\n")
    corpus(path)
    print(path, os.path.getsize(path), len(flows), "flows")


def corpus(path):
    """The first packets of each flow as an input of the fuzzer: see fuzz/src/apps.rs."""
    file = pathlib.Path(path).read_bytes()
    flows, at = {}, 24
    while at < len(file):
        length = struct.unpack_from("<I", file, at + 8)[0]
        packet = file[at + 16 + 14:at + 16 + length]
        at += 16 + length
        transport = packet[4 * (packet[0] & 15):struct.unpack_from("!H", packet, 2)[0]]
        tcp = packet[9] == 6
        source, destination = struct.unpack_from("!HH", transport)
        flow = flows.setdefault((tcp, *sorted((source, destination))), [(source, destination)])
        data = transport[transport[12] // 16 * 4 if tcp else 8:]
        syn = tcp and transport[13] & 2
        if (data or syn) and len(flow) <= 8:
            reverse = source != flow[0][0]
            flow.append(struct.pack("!BBH", reverse | syn, 0, len(data)) + data)
    folder = FOLDER.parents[2] / "fuzz" / "corpus" / "flow_apps"
    folder.mkdir(exist_ok=True)
    for i, ((tcp, *_), (ports, *packets)) in enumerate(flows.items()):
        start = struct.pack("!BH", tcp, ports[1])
        if sum(map(len, packets)) < 40:
            # Somebody looked whether a server listens.
            continue
        (folder / f"{pathlib.Path(path).stem}_{i}").write_bytes(start + b"".join(packets)[:3000])


def listening(port):
    for _ in range(500):
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.01)
    sys.exit(f"nothing listens at {port}")


def serve(*command, port):
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    listening(port)
    return server


def send(port, *datagrams, source=0):
    """Datagrams to a port where nobody need listen."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind((HOST, source))
        for datagram in datagrams:
            one.sendto(datagram, (HOST, port))


def exchange(port, *talk):
    """Datagrams between a client and `port`, in turn."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client, \
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((HOST, port))
        client.bind((HOST, 0))
        for i, datagram in enumerate(talk):
            if i % 2 == 0:
                client.sendto(datagram, (HOST, port))
                server.recv(9000)
            else:
                server.sendto(datagram, client.getsockname())
                client.recv(9000)


def scripted(port, answers, client):
    """A server that says one line after the other, each after something was said to it."""
    listener = socket.create_server((HOST, port))

    def serve_one():
        peer, _ = listener.accept()
        with peer:
            for answer in answers[:-1]:
                peer.sendall(answer)
                if not peer.recv(9000):
                    return
            peer.sendall(answers[-1])

    thread = threading.Thread(target=serve_one)
    thread.start()
    client()
    thread.join()
    listener.close()


def tls():
    server = serve("openssl", "s_server", "-accept", "4433", "-cert", "cert.pem", "-key", "key.pem",
                   "-www", "-alpn", "http/1.1", port=4433)
    to = ["-connect", f"{HOST}:4433"]
    end = {"input": b"", "good": (0, 1)}
    run("openssl", "s_client", *to, "-servername", NAME, "-alpn", "h2,http/1.1", **end)
    run("openssl", "s_client", *to, "-servername", "old.example.org", "-tls1_2", **end)
    run("openssl", "s_client", *to, "-noservername", "-groups", "P-384", **end)
    resolve = ["--connect-to", f"::{HOST}:4433", "--insecure", "--silent", "--output", "/dev/null"]
    run("curl", *resolve, "https://curl.example.org/")
    run("curl", *resolve, "--tls-max", "1.2", "--http1.1", "https://curl12.example.org/")
    run("wget", "-q", "-O", "/dev/null", "--no-check-certificate", f"https://{HOST}:4433/")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["x"])
    with socket.create_connection((HOST, 4433)) as plain:
        # The hello leaves in small pieces.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(incoming, outgoing, server_hostname="pieces.example.org")
        try:
            session.do_handshake()
        except ssl.SSLWantReadError:
            hello = outgoing.read()
        for i in range(0, len(hello), 100):
            plain.sendall(hello[i:i + 100])
            time.sleep(0.01)
        plain.recv(9000)
    server.kill()
    server.wait()


def quic():
    from aioquic.asyncio import connect, serve as serve_quic
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.packet import QuicProtocolVersion

    async def talk(version, name, retry):
        server = QuicConfiguration(is_client=False, alpn_protocols=["hq-interop", "h3"])
        server.load_cert_chain("cert.pem", "key.pem")
        listener = await serve_quic(HOST, 0, configuration=server, retry=retry)
        port = listener._transport.get_extra_info("sockname")[1]
        client = QuicConfiguration(is_client=True, alpn_protocols=["h3", "hq-interop"],
                                   server_name=name, verify_mode=ssl.CERT_NONE)
        client.original_version = version
        client.supported_versions = [version]
        async with connect(HOST, port, configuration=client) as connection:
            await connection.ping()
        listener.close()

    for version, name, retry in [(QuicProtocolVersion.VERSION_1, "one.example.org", False),
                                 (QuicProtocolVersion.VERSION_1, "retry.example.org", True),
                                 (QuicProtocolVersion.VERSION_2, "two.example.org", False)]:
        asyncio.run(talk(version, name, retry))


def http():
    server = serve(sys.executable, "-m", "http.server", "8000", "--bind", HOST, port=8000)
    resolve = ["--connect-to", f"::{HOST}:8000", "--silent", "--output", "/dev/null"]
    run("curl", *resolve, "http://plain.example.org/")
    run("curl", *resolve, "--head", "http://head.example.org/a?b=c")
    run("curl", *resolve, "--data", "x=y", "--user-agent", "sonde test", "http://post.example.org/p")
    cookie = "c=" + "x" * 5000
    run("curl", *resolve, "--cookie", cookie, "http://cookie.example.org/missing")
    run("wget", "-q", "-O", "/dev/null", f"http://{HOST}:8000/", good=(0, 8))
    server.kill()
    server.wait()


def dns():
    server = serve("dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--port=53",
                   "--user=root", "--pid-file=", "--conf-file=/dev/null", f"--address=/{NAME}/192.0.2.1",
                   "--local=/example.org/", f"--listen-address={HOST}", "--bind-interfaces", port=53)
    ask = ["dig", f"@{HOST}", "+tries=1", "+time=2"]
    run(*ask, NAME, "A")
    run(*ask, "MiXed." + NAME, "A")
    run(*ask, "missing.example.org", "AAAA")
    run(*ask, "outside.example.net", "MX")
    run(*ask, "+noedns", "-x", "192.0.2.7")
    run(*ask, "+tcp", NAME, "A")
    server.kill()
    server.wait()


def others():
    """SSH, SMTP, NTP, SIP and DHCP."""
    def ssh():
        run("ssh", "-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes", "-p", "22",
            f"nobody@{HOST}", "true", good=(255,))

    scripted(22, [b"SSH-2.0-scripted_1.0 test\r\n", b"garbage" * 10], ssh)

    def mail():
        with smtplib.SMTP(HOST, 25, local_hostname="client.example.org") as session:
            session.sendmail("a@example.org", ["b@example.net", "c@example.net"], "Subject: x\n\nx")

    scripted(25, [b"220 mail.example.org ESMTP\r\n", b"250-mail.example.org\r\n250 SIZE\r\n",
                  b"250 ok\r\n", b"250 ok\r\n", b"250 ok\r\n", b"354 go\r\n", b"250 ok\r\n",
                  b"221 bye\r\n"], mail)

    def secure():
        session = smtplib.SMTP(HOST, 587, local_hostname="client.example.org", timeout=5)
        try:
            session.starttls()
        except (ssl.SSLError, smtplib.SMTPException, OSError):
            pass
        session.close()

    scripted(587, [b"220 mail.example.org ready\r\n", b"250-x\r\n250 STARTTLS\r\n", b"220 go\r\n",
                   b"x"], secure)

    exchange(123, struct.pack("!B39x8s", 0x23, b"\xe9" * 8),
             struct.pack("!BBbb36x8s", 0x24, 3, 6, -20, b"\xe9" * 8))
    invite = ("INVITE sip:bob@biloxi.example SIP/2.0\r\nVia: SIP/2.0/UDP a.example;branch=z9hG4bK7\r\n"
              "Max-Forwards: 70\r\nTo: Bob <sip:bob@biloxi.example>\r\n"
              "From: \"Alice\" <sip:alice@atlanta.example>;tag=1928\r\nCall-ID: a84b4c76e66710\r\n"
              "CSeq: 314159 INVITE\r\nContact: <sip:alice@a.example>\r\nContent-Length: 0\r\n\r\n")
    trying = invite.replace("INVITE sip:bob@biloxi.example SIP/2.0", "SIP/2.0 100 Trying")
    ringing = trying.replace("100 Trying", "180 Ringing")
    ack = invite.replace("INVITE", "ACK")
    exchange(5060, invite.encode(), trying.encode(), ack.encode(), ringing.encode())

    def dhcp(op, kind, *options):
        head = struct.pack("!BBBBIHH16x6s202x", op, 1, 6, 0, 7, 0, 0, b"\x02\0\0\0\0\x09")
        body = b"".join(bytes([code, len(value)]) + value for code, value in options)
        return head + b"\x63\x82\x53\x63" + bytes([53, 1, kind]) + body + b"\xff"

    names = (12, b"laptop"), (60, b"test vendor 1")
    send(67, dhcp(1, 1, *names), dhcp(1, 3, *names), source=68)
    send(68, dhcp(2, 2), dhcp(2, 5), source=67)


# What tshark says.

FIELDS = """frame.time_epoch ip.proto tcp.srcport tcp.dstport udp.srcport udp.dstport
tls.handshake.type tls.handshake.version tls.handshake.ciphersuite tls.handshake.extension.type
tls.handshake.sig_hash_alg tls.handshake.extensions.supported_version tls.handshake.ja3
tls.handshake.extensions_server_name tls.handshake.extensions_alpn_str quic.version
http.request.method http.host http.request.uri http.user_agent http.response.code
dns.flags.response dns.flags.rcode dns.qry.name dns.qry.type dns.count.answers dns.time dns.id
ssh.protocol ntp.flags.vn ntp.flags.mode ntp.stratum
sip.Method sip.Call-ID sip.from.addr sip.to.addr sip.Status-Code
smtp.req.command smtp.req.parameter
dhcp.option.dhcp dhcp.hw.mac_addr dhcp.option.hostname dhcp.option.vendor_class_id""".split()


def judge(path):
    """One expectation for each flow in which tshark finds something."""
    command = ["tshark", "-r", path, "-d", "tcp.port==4433,tls", "-T", "fields", "-E", "separator=/t",
               "-E", "occurrence=a", "-E", "aggregator=|"]
    command += ["-d", "tcp.port==8000,http", "-d", "tcp.port==587,smtp"]
    for field in FIELDS:
        command += ["-e", field]
    flows, order = {}, []
    for text in run(*command).splitlines():
        values = dict(zip(FIELDS, text.split("\t")))
        ports = [values["tcp.srcport"] or values["udp.srcport"],
                 values["tcp.dstport"] or values["udp.dstport"]]
        if not ports[0]:
            continue
        packet = Packet(values)
        key = (int(values["ip.proto"]), frozenset(ports))
        if key not in flows:
            flows[key] = {"protocol": key[0], "source_port": int(ports[0]),
                          "destination_port": int(ports[1]), "app": {}}
            order.append(key)
        expect(flows[key], packet, int(ports[0]) == flows[key]["source_port"])
    found = [finish(flows[key]) for key in order]
    return [flow for flow in found if flow["app"]]


class Packet:
    """The fields of one packet."""

    def __init__(self, values):
        self.values = values

    def all(self, name):
        return [value for value in self.values[name].split("|") if value]

    def first(self, name, default=None):
        return next(iter(self.all(name)), default)


def expect(flow, packet, forward):
    """Adds what one packet tells."""
    app = flow["app"]
    kinds = packet.all("tls.handshake.type")
    version = packet.first("quic.version")
    if version and not app:
        app.update(protocol="quic", version=int(version, 16), tls=dict(EMPTY))
    if "1" in kinds:
        hello = client_hello(packet, "q" if version else "t")
        if version:
            app.update(tls=hello)
        elif not app:
            app.update(protocol="tls", **hello)
    elif "2" in kinds and app.get("protocol") == "tls":
        chosen = packet.first("tls.handshake.extensions.supported_version")
        app["version"] = int(chosen or packet.first("tls.handshake.version"), 16)
    if packet.first("http.request.method") and not app:
        app.update(protocol="http", method=packet.first("http.request.method"),
                   host=packet.first("http.host", ""), target=packet.first("http.request.uri"),
                   user_agent=packet.first("http.user_agent", ""), status=0)
    if packet.first("http.response.code") and app.get("status") == 0:
        app["status"] = int(packet.first("http.response.code"))
    if packet.first("dns.qry.name"):
        if packet.first("dns.flags.response") == "0":
            app.update(protocol="dns", name=packet.first("dns.qry.name"),
                       qtype=int(packet.first("dns.qry.type")), rcode=None, answers=0, latency_ns=0)
        elif app.get("rcode", 0) is None:
            app.update(rcode=int(packet.first("dns.flags.rcode")),
                       answers=int(packet.first("dns.count.answers")),
                       latency_ns=round(float(packet.first("dns.time")) * 1e9))
    if packet.first("ssh.protocol"):
        app.setdefault("protocol", "ssh")
        app["client" if forward else "server"] = packet.first("ssh.protocol")
    if packet.first("ntp.flags.mode"):
        mode = int(packet.first("ntp.flags.mode"))
        if not app:
            app.update(protocol="ntp", version=int(packet.first("ntp.flags.vn")), mode=mode, stratum=0)
        elif mode == 4:
            app["stratum"] = int(packet.first("ntp.stratum"))
    if packet.first("sip.Method") and not app:
        app.update(protocol="sip", method=packet.first("sip.Method"),
                   call_id=packet.first("sip.Call-ID"), status=0,
                   **{"from": packet.first("sip.from.addr"), "to": packet.first("sip.to.addr")})
    if packet.first("sip.Status-Code") and app.get("status", 200) < 200:
        app["status"] = int(packet.first("sip.Status-Code"))
    for command, parameter in zip(packet.all("smtp.req.command"), packet.all("smtp.req.parameter") + [""]):
        app.setdefault("protocol", "smtp")
        for field in ("helo", "from", "to"):
            app.setdefault(field, "")
        app.setdefault("starttls", False)
        argument = parameter.rpartition("<")[2].partition(">")[0]
        if command.upper() in ("EHLO", "HELO"):
            app["helo"] = parameter
        elif command.upper() == "MAIL":
            app["from"] = argument
        elif command.upper() == "RCPT":
            app["to"] = app["to"] or argument
        elif command.upper() == "STAR":  # tshark takes four letters
            app["starttls"] = True
    if packet.first("dhcp.option.dhcp"):
        if not app:
            mac = [int(octet, 16) for octet in packet.first("dhcp.hw.mac_addr").split(":")]
            app.update(protocol="dhcp", client_mac=mac, host_name=packet.first("dhcp.option.hostname", ""),
                       vendor=packet.first("dhcp.option.vendor_class_id", ""))
        app["message"] = int(packet.first("dhcp.option.dhcp"))


EMPTY = {"sni": "", "alpn": "", "version": 0, "ja3": "", "ja4": ""}


def client_hello(packet, transport):
    versions = [int(value, 16) for value in packet.all("tls.handshake.extensions.supported_version")]
    version = max(versions, default=int(packet.first("tls.handshake.version"), 16))
    alpn = packet.first("tls.handshake.extensions_alpn_str", "")
    return {
        "sni": packet.first("tls.handshake.extensions_server_name", ""),
        "alpn": alpn,
        "version": version,
        "ja3": packet.first("tls.handshake.ja3"),
        "ja4": ja4(packet, transport, version, alpn),
    }


def ja4(packet, transport, version, alpn):
    """By technical_details/JA4.md of its authors; these clients send no GREASE."""
    ciphers = sorted(f"{int(value, 0):04x}" for value in packet.all("tls.handshake.ciphersuite"))
    kinds = [int(value) for value in packet.all("tls.handshake.extension.type")]
    signatures = [f"{int(value, 0):04x}" for value in packet.all("tls.handshake.sig_hash_alg")]
    rest = sorted(f"{kind:04x}" for kind in kinds if kind not in (0, 16))
    text = ",".join(rest) + ("_" + ",".join(signatures) if signatures else "")

    def short(value):
        return hashlib.sha256(value.encode()).hexdigest()[:12]

    return (f"{transport}{ {0x304: '13', 0x303: '12'}[version] }{'d' if 0 in kinds else 'i'}"
            f"{len(ciphers):02}{len(kinds):02}{alpn[:1] + alpn[-1:] or '00'}"
            f"_{short(','.join(ciphers))}_{short(text)}")


def finish(flow):
    if flow["app"].get("protocol") == "ssh":
        flow["app"].setdefault("server", "")
        flow["app"].setdefault("client", "")
    return flow


if __name__ == "__main__":
    main()
