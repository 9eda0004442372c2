# The zygote's connection to the host. It is moved away from the descriptor on which it
# was handed over: ctypes opens a file of its own, and is to get the number in a zygote
# that it gets in any interpreter. So this module comes before ctypes.
import json
import os

from pinfold_protocol import FD

HOST = 4
os.dup2(FD, HOST, False)
os.close(FD)


def tell(connection, what):
    connection.send(json.dumps(what).encode())
