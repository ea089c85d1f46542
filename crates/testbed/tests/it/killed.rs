//! A killed test process takes its servers along. This file is also the process that is killed: with a
//! variable set it starts a server, reports it, and waits.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;

use tollgate_testbed::{Server, wait_until};

const VICTIM: &str = "TESTBED_VICTIM";

#[test]
fn no_server_outlives_a_killed_process() {
    if std::env::var_os(VICTIM).is_some() {
        return wait_for_the_end();
    }
    let mut victim = tollgate_testbed::rerun(module_path!(), "no_server_outlives_a_killed_process")
        .env(VICTIM, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let told = lines.find_map(|line| line.unwrap().split_once("started ").map(|(_, told)| told.to_owned()));
    let told = told.unwrap();
    let (pid, socket) = told.split_once(' ').unwrap();
    let socket = Path::new(socket);
    assert!(runs(pid) && socket.exists());
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until("the server ends and its directory goes", || !runs(pid) && !socket.exists());
}

/// Whether a process runs. An ended one may stay in the table until it is waited for.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_for_the_end() {
    let server = Server::redis().start();
    println!("started {} {}", server.pid(), server.socket().display());
    let _ = std::io::stdin().read(&mut [0]);
}
