// Two processes of one cluster share a listening socket and answer requests.
const cluster = require('cluster')
const http = require('http')

if (cluster.isPrimary) {
  let ready = 0
  for (let i = 0; i < 2; i++) cluster.fork()
  cluster.on('listening', (_, address) => {
    if (++ready < 2) return
    let left = 20, bytes = 0
    const ask = () => http.get({ port: address.port, agent: false }, (answer) => {
      answer.on('data', (d) => { bytes += d.length })
      answer.on('end', () => {
        if (--left > 0) return ask()
        console.log('bytes', bytes)
        for (const id in cluster.workers) cluster.workers[id].kill()
      })
    })
    ask()
  })
  cluster.on('exit', (worker, code, signal) => { if (!worker.exitedAfterDisconnect && !signal && code) process.exitCode = 1 })
} else {
  http.createServer((_, answer) => answer.end('x'.repeat(1000))).listen(8123)
}
