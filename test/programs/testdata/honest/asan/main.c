// Correct programs end well under the sanitizers: nothing is freed twice, and
// what is not freed is still reachable.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *kept;

static void *work(void *arg) {
	int *numbers = malloc(1000 * sizeof *numbers);
	long sum = 0;
	for (int i = 0; i < 1000; i++)
		numbers[i] = i * *(int *)arg;
	for (int i = 0; i < 1000; i++)
		sum += numbers[i];
	free(numbers);
	return (void *)sum;
}

int main(void) {
	pthread_t threads[4];
	int factors[4] = {1, 2, 3, 4};
	long total = 0;
	kept = strdup("kept");
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, &factors[i]);
	for (int i = 0; i < 4; i++) {
		void *sum;
		pthread_join(threads[i], &sum);
		total += (long)sum;
	}
	printf("%s %ld\n", kept, total);
	return 0;
}
