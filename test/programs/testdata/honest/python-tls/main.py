"""A certificate made by openssl, a server that shows it, a client that checks it."""
import http.server
import ssl
import subprocess
import threading
import urllib.request

subprocess.run(
    ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days", "2",
     "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello " + self.path.encode())

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"https://localhost:{server.server_address[1]}/there"
trusting = ssl.create_default_context(cafile="cert.pem")
print(urllib.request.urlopen(address, context=trusting).read())
try:
    urllib.request.urlopen(address, context=ssl.create_default_context())
except OSError as error:
    print("refused:", "certificate verify failed" in str(error))
server.shutdown()
