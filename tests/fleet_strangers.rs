//! Who else comes to the port of rank 0: nobody gets in, and the run is unharmed.

mod cli_support;
mod launch_support;
mod process_support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use collcheck::fleet::processes::wire::PROTOCOL;
use launch_support::{Codes, Job, SMALL, free_port, line, small, stderr, torchrun};
use process_support::within;
use serde_json::{Value, json};

/// Connects as soon as somebody listens, says this, and returns what is answered.
fn knock(port: u16, bytes: &[u8]) -> Value {
    let end = Instant::now() + Duration::from_secs(30);
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // who is sent away may not have heard all
    let _ = stream.write_all(bytes);
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

fn frame(message: &Value) -> Vec<u8> {
    let body = serde_json::to_vec(message).unwrap();
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

fn hello(token: &str, index: u32, of: u32) -> Value {
    let card = json!({"unit": "Rank", "index": index, "of": of, "local_rank": null, "workers": null, "host": "x",
        "machine": "x", "memory": "x", "network": "x", "gate": null, "gpus": []});
    json!({"protocol": PROTOCOL, "collcheck": env!("CARGO_PKG_VERSION"), "token": token, "who": {"Agent": card}})
}

#[test]
fn nobody_else_gets_in_and_the_run_is_unharmed() {
    let (port, mut job) = (free_port(), Job::new());
    let member = |rank: u32, token: &str| {
        let secret = [("COLLCHECK_TOKEN", token.to_owned())];
        [torchrun(rank, 2, port), secret.to_vec()].concat()
    };
    let args = small();
    job.start(&member(0, "secret"), &args);

    let mut other_version = hello("secret", 1, 2);
    other_version["collcheck"] = json!("9.9.9");
    let mut other_protocol = hello("secret", 1, 2);
    other_protocol["protocol"] = json!(PROTOCOL - 1);
    let mut no_card = hello("secret", 1, 2);
    no_card["who"] = json!({"Agent": {"index": -1}});
    let worker = json!({"protocol": PROTOCOL, "collcheck": env!("CARGO_PKG_VERSION"), "token": "secret",
        "who": {"Worker": {"rank": 1, "process": 1}}});
    let refusals = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "did not say hello: a frame of "),
        (vec![0xff; 1 << 20], "a frame of 4294967295 bytes"),
        ([&[0, 0, 16, 0][..], &[b' '; 4096]].concat(), "not a message of this protocol"),
        (b"\0\0\0\x02{}".to_vec(), "not a message of this protocol"),
        (frame(&hello("guessed", 1, 2)), "its token is not that of this run"),
        (frame(&other_version), &format!("it is collcheck 9.9.9 (protocol {PROTOCOL}), this is ")),
        (frame(&other_protocol), &format!("(protocol {}), this is ", PROTOCOL - 1)),
        (frame(&no_card), "not a message of this protocol"),
        (frame(&worker), "it is not of the kind that belongs here"),
        (frame(&hello("secret", 2, 2)), "it claims rank 2 of 2"),
        (frame(&hello("secret", 1, 3)), "it is rank 1 of 3, this run has 2 ranks"),
        (frame(&hello("secret", 0, 2)), "rank 0 is here already"),
    ];
    let count = refusals.len();
    for (bytes, expected) in refusals {
        let answer = knock(port, &bytes).to_string();
        assert!(answer.contains(expected), "{answer}");
    }
    // one who says nothing must not hold up the others
    let _silent = TcpStream::connect(("127.0.0.1", port)).unwrap();

    let mut others = Job::new();
    others.start(&member(1, "wrong"), &args);
    others.start(&member(0, "secret"), &args);
    others.start(&member(0, "wrong"), &args);
    let outputs = others.wait();
    assert!(line(&outputs[0]).contains("rank 0 refused this process: its token is not that of this run"));
    assert!(line(&outputs[1]).contains("another rank 0 of this job listens at "));
    assert!(line(&outputs[2]).contains("rank 0 cannot listen at localhost"));
    assert_eq!(outputs.map_codes(), [Some(2), Some(3), Some(3)]);
    assert!((0..3).all(|index| !others.json(index).exists()), "they have no reports to write");

    job.start(&member(1, "secret"), &args);
    let outputs = job.wait();
    assert_eq!(outputs.map_codes(), [Some(0), Some(0)], "{}", stderr(&outputs[0]));
    assert_eq!(job.results(0).summary.passed, 2);
    let said = stderr(&outputs[0]);
    assert!(said.lines().filter(|line| line.starts_with("refused a connection from")).count() >= count, "{said}");
}

/// As many as are heard at the same time, and more.
#[test]
fn a_crowd_that_says_nothing_delays_the_others_and_no_more() {
    let (port, mut job) = (free_port(), Job::new());
    let member = |rank: u32| torchrun(rank, 2, port);
    job.start(&member(0), &small());
    within(Duration::from_secs(30), "an open port", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let _crowd: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    job.start(&member(1), &small());
    let outputs = job.wait();
    assert_eq!(outputs.map_codes(), [Some(0), Some(0)], "{}", stderr(&outputs[0]));
}

#[test]
fn strangers_come_while_the_run_is_under_way_and_change_nothing() {
    let (port, mut job) = (free_port(), Job::new());
    let cases = ["-n", "200", "--exact", "all_reduce::sum::float::64KiB", SMALL[0], SMALL[1]];
    for rank in [0, 1] {
        job.start(&torchrun(rank, 2, port), &cases);
    }
    let mut knocks = 0;
    while job.children[0].try_wait().unwrap().is_none() {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &frame(&hello("guessed", 1, 2))] {
            // the port may not be open yet, or not any more
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
                knocks += usize::from(stream.write_all(bytes).is_ok());
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let outputs = job.wait();
    assert_eq!(outputs.map_codes(), [Some(0), Some(0)], "{}", stderr(&outputs[0]));
    assert!(knocks >= 10 && job.results(0).summary.passed == 3, "{knocks} knocks");
}

/// One that was let in, and then speaks another language or without an end, is as good as gone.
#[test]
fn an_agent_that_is_not_understood_is_a_lost_one() {
    for garbage in [&b"\0\0\0\x02{}"[..], &[0xff; 64]] {
        let (port, mut job) = (free_port(), Job::new());
        let member = [torchrun(0, 2, port), vec![("COLLCHECK_TOKEN", "secret".to_owned())]].concat();
        let args = [&small()[..], &["--host-transport", "tcp"]].concat();
        job.start(&member, &args);
        within(Duration::from_secs(30), "an open port", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(&[&frame(&hello("secret", 1, 2))[..], garbage].concat()).unwrap();
        let output = job.wait().remove(0);
        let said = stderr(&output);
        assert!(said.contains("rank 1 of 2 on x is gone") || said.contains("ended before the case did"), "{said}");
        assert!(matches!(output.status.code(), Some(3 | 101)), "{said}");
    }
}
