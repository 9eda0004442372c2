"""Pools of processes and threads, shared memory, queues, and a child that fails."""
import asyncio
import concurrent.futures
import multiprocessing
import os
import subprocess
import sys
from multiprocessing import shared_memory


def square(n):
    return n * n


def fill(name, part):
    block = shared_memory.SharedMemory(name)
    block.buf[part * 4:part * 4 + 4] = bytes([part] * 4)
    block.close()


async def children():
    made = [await asyncio.create_subprocess_exec(sys.executable, "-c", f"print({n})", stdout=asyncio.subprocess.PIPE) for n in range(3)]
    return [int((await child.communicate())[0]) for child in made]


if __name__ == "__main__":
    with multiprocessing.Pool(3) as pool:
        print(sum(pool.map(square, range(200))))
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        print(list(pool.map(square, range(5))))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        print(sum(pool.map(square, range(100))))
    block = shared_memory.SharedMemory(create=True, size=16)
    parts = [multiprocessing.Process(target=fill, args=(block.name, part)) for part in range(4)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    print(bytes(block.buf[:16]).hex())
    block.close()
    block.unlink()
    print(asyncio.run(children()))
    failed = subprocess.run([sys.executable, "-c", "raise SystemExit(7)"])
    print(failed.returncode, os.cpu_count() >= 1, len(os.sched_getaffinity(0)) >= 1)
