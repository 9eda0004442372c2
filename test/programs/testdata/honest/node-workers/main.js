// A pool with a worker for each CPU, as the documentation of worker_threads
// has it: on a machine that says it has no CPUs it computes nothing.
const os = require('os')
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads')

if (isMainThread) {
  const count = os.cpus().length
  let sum = 0, left = count
  for (let i = 0; i < count; i++) {
    new Worker(__filename, { workerData: { first: i, step: count } })
      .on('message', (n) => { sum += n })
      .on('exit', () => { if (--left === 0) console.log('sum', sum, os.availableParallelism() >= 1, os.totalmem() > 0) })
  }
} else {
  let n = 0
  for (let i = workerData.first; i < 100000; i += workerData.step) n += i
  parentPort.postMessage(n)
}
