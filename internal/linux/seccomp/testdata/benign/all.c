/* Threads, children, shared memory, terminals: what ordinary C programs do. */
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static void *thread(void *p) { return p; }

int main(void) {
    pthread_t t[20];
    for (int i = 0; i < 20; i++) assert(pthread_create(&t[i], 0, thread, 0) == 0);
    for (int i = 0; i < 20; i++) assert(pthread_join(t[i], 0) == 0);
    pid_t p;
    int status;
    char *argv[] = {"sh", "-c", "exit 5", 0};
    assert(posix_spawnp(&p, "sh", 0, 0, argv, environ) == 0);
    assert(waitpid(p, &status, 0) == p && WEXITSTATUS(status) == 5);
    assert(system("exit 6") >> 8 == 6);
    FILE *f = popen("echo hi", "r");
    char line[16];
    assert(fgets(line, sizeof line, f) && pclose(f) == 0);
    int id = shmget(IPC_PRIVATE, 4096, 0600);
    assert(id >= 0 && shmat(id, 0, 0) != (void *)-1 && shmctl(id, IPC_RMID, 0) == 0);
    id = semget(IPC_PRIVATE, 1, 0600);
    assert(id >= 0 && semctl(id, 0, IPC_RMID) == 0);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *res;
    assert(getaddrinfo("localhost", "80", &hints, &res) == 0);
    prctl(PR_SET_NAME, "benign");
    prctl(PR_SET_PDEATHSIG, 9);
    assert(mkfifo("fifo", 0600) == 0 && unlink("fifo") == 0);
    assert(posix_fallocate(open("f", O_RDWR | O_CREAT, 0600), 0, 100) == 0);
    int m = posix_openpt(O_RDWR | O_NOCTTY);
    assert(m >= 0 && grantpt(m) == 0 && unlockpt(m) == 0 && isatty(open(ptsname(m), O_RDWR | O_NOCTTY)));
    assert(sched_yield() == 0 && sync_file_range(0, 0, 0, 0) <= 0);
    puts("benign");
    return 0;
}
