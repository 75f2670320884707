"""A mail server on the loopback: says on standard output, a JSON line each, what it takes.

Usage: smtp_server.py PORT starttls|tls|none CERTIFICATE KEY
With TLS only the user `sonde` with the password `open sesame` may send. It takes nothing for
addresses that begin with `gone`.
"""

import asyncio
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("gone"):
            return "550 5.1.1 no such user"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 ok"

    async def handle_DATA(self, server, session, envelope):
        said = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "user": session.auth_data.decode() if session.auth_data else None,
            "tls": session.ssl is not None or server.transport.get_extra_info("ssl_object") is not None,
            "text": envelope.content.decode("ascii"),
        }
        print(json.dumps(said), flush=True)
        return "250 2.0.0 taken"


def authenticate(server, session, envelope, mechanism, data):
    good = data.login == b"sonde" and data.password == b"open sesame"
    return AuthResult(success=good, handled=good, auth_data=data.login if good else None)


async def main():
    port, security, certificate, key = int(sys.argv[1]), *sys.argv[2:]
    context = None
    if security != "none":
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)

    def session():
        return SMTP(
            Handler(),
            hostname="mail.example",
            tls_context=context if security == "starttls" else None,
            require_starttls=security == "starttls",
            auth_required=security != "none",
            auth_require_tls=security == "starttls",
            authenticator=authenticate,
            loop=asyncio.get_running_loop(),
        )

    loop = asyncio.get_running_loop()
    await loop.create_server(
        session, "127.0.0.1", port, ssl=context if security == "tls" else None
    )
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
