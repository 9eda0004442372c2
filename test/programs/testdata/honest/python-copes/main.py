"""A program that lives with every refusal: of memory for a thread, of a file that
is too large, of a descriptor too many, of a directory it may not write to."""
import errno
import os
import socket
import threading

held, stop = [], threading.Event()
try:
    for _ in range(5000):
        thread = threading.Thread(target=stop.wait)
        thread.start()
        held.append(thread)
except RuntimeError:
    print("threads are refused at some point")
else:
    print("threads are refused at some point")
stop.set()
for thread in held:
    thread.join()
print("at least thirty:", len(held) >= 30)

files = []
try:
    while len(files) < 1 << 20:
        files.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    print(errno.errorcode[error.errno])
for fd in files:
    os.close(fd)
try:
    open("/usr/bin/new", "w")
except OSError as error:
    print(type(error).__name__ in ("PermissionError", "OSError"))
a, b = socket.socketpair()
a.sendall(b"still working")
print(b.recv(100).decode())
print(sum(i * i for i in range(300000)))
