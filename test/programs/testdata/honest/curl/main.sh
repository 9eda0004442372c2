set -euo pipefail
python3 -c '
import http.server, threading, subprocess
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
open("page.txt", "w").write("page\n" * 1000)
url = "http://127.0.0.1:%d/page.txt" % server.server_address[1]
print(subprocess.run(["curl", "-s", "-Z", "-o", "a", url, "-o", "b", url], check=True).returncode)
' 2>/dev/null
sha256sum a b
if curl -s --max-time 5 http://127.0.0.1:1/; then echo answered; else echo refused $?; fi
