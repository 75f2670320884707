"""A QUIC server that sends back what it gets, and a client that asks again and again.

    quic_echo.py server ADDRESS PORT FOLDER     until ended; FOLDER is for its certificate
    quic_echo.py client ADDRESS PORT ROUNDS     one request at a time; prints, in ns, the least
                                                and the middle round trip that it saw, and
                                                the least by its stack's own estimate

aioquic turns the spin bit once a round trip (RFC 9000, section 17.4) and sends back the
peer's, as far as it is a server: for the instrument this is a connection that spins.
"""

import asyncio
import datetime
import pathlib
import ssl
import statistics
import sys
import time

from aioquic.asyncio import connect, serve
from aioquic.quic.configuration import QuicConfiguration
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

ALPN = ["sonde-test"]


def certificate(folder):
    """A key and a certificate by itself, valid today."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sonde.test")])
    day, now = datetime.timedelta(days=1), datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .sign(key, hashes.SHA256())
    )
    form = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(form))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return folder / "cert.pem", folder / "key.pem"


async def echo(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)


async def server(address, port, folder):
    configuration = QuicConfiguration(is_client=False, alpn_protocols=ALPN)
    configuration.load_cert_chain(*certificate(pathlib.Path(folder)))
    tasks = set()

    def handler(reader, writer):
        task = asyncio.ensure_future(echo(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    await serve(address, int(port), configuration=configuration, stream_handler=handler)
    print("serving", flush=True)
    await asyncio.Event().wait()


async def client(address, port, rounds):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=ALPN)
    configuration.verify_mode = ssl.CERT_NONE
    async with connect(address, int(port), configuration=configuration) as connection:
        reader, writer = await connection.create_stream()
        seen = []
        for _ in range(int(rounds)):
            begin = time.monotonic_ns()
            writer.write(b"x" * 100)
            await reader.readexactly(100)
            seen.append(time.monotonic_ns() - begin)
        least = connection._quic._loss._rtt_min
        print(min(seen), int(statistics.median(seen)), int(least * 1e9), flush=True)


if __name__ == "__main__":
    role = {"server": server, "client": client}[sys.argv[1]]
    asyncio.run(asyncio.wait_for(role(*sys.argv[2:]), 60))
