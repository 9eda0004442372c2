set -e
gcc -g -fsanitize=address -o asan main.c -lpthread
./asan
gcc -g -fsanitize=undefined -fno-sanitize-recover -o ubsan main.c -lpthread
./ubsan
sed 's/kept = strdup("kept");/kept = strdup("kept"); int *p = malloc(4); free(p); *p = 1;/' main.c >wrong.c
gcc -g -fsanitize=address -o wrong wrong.c -lpthread
if ./wrong 2>report; then echo "not noticed"; else grep -o 'heap-use-after-free' report | head -1; fi
