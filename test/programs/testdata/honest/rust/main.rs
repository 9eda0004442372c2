// A thread for each CPU, a channel, a child process, an error that is handled.
use std::process::Command;
use std::sync::mpsc;
use std::thread;

fn main() {
    let cpus = thread::available_parallelism().map(|n| n.get()).unwrap_or(0);
    let (send, receive) = mpsc::channel();
    for first in 0..cpus {
        let send = send.clone();
        thread::spawn(move || send.send((first..100_000).step_by(cpus).map(|n| n as u64).sum::<u64>()).unwrap());
    }
    drop(send);
    println!("sum {}", receive.iter().sum::<u64>());
    let child = Command::new("sh").args(["-c", "echo from a child; exit 3"]).output().unwrap();
    print!("{} {}", child.status.code().unwrap(), String::from_utf8_lossy(&child.stdout));
    println!("{}", std::fs::read_to_string("/nonexistent").is_err());
}
