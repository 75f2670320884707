"""A receiver of OTLP metrics over HTTP: otlp_receiver.py PORT.

Prints `ready`, then one line of JSON for each request: its headers, and the request as
opentelemetry-proto reads it. What it cannot read, or what has fields that the schema does not
have, is refused (400) and printed as an error.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from google.protobuf.json_format import MessageToDict
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)


def unknown(message):
    """Whether a message, or one in it, has fields that the schema does not have."""
    if len(UnknownFieldSet(message)) > 0:
        return True
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        if any(unknown(inner) for inner in (value if isinstance(value, list) or hasattr(value, "append") else [value])):
            return True
    return False


def decoded(body):
    request = ExportMetricsServiceRequest()
    request.ParseFromString(body)
    if unknown(request):
        raise ValueError("it has fields that the schema does not have")
    return MessageToDict(request, preserving_proto_field_name=True)


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        line = {"path": self.path, "headers": {name.lower(): value for name, value in self.headers.items()}}
        try:
            line["request"] = decoded(body)
            status, answer = 200, ExportMetricsServiceResponse().SerializeToString()
        except Exception as error:  # whatever is wrong with it
            line["error"] = repr(error)
            status, answer = 400, b""
        print(json.dumps(line), flush=True)
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
print("ready", flush=True)
server.serve_forever()
