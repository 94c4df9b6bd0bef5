//! The reader of NCCL's log, on a real log and on what is left of one.

use collcheck::evidence::nccl_log::{self, Choice, Coll, Connected, Level, Line, Message, Net, Stage, Tuning};

const LOG: &[u8] = include_bytes!("data/nccl_log/2.28.9.log");

/// One line of each form that the log above does not have, worded as in NCCL's source.
const OTHER_FORMS: &str = "\
n:1:2 [0] NCCL INFO 1048576 Bytes -> Algo 1 proto 2 time 12.300000
n:1:2 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo 4 proto 2 time 12.300000
n:1:2 [0] NCCL INFO AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads 512 nWorks 1
n:1:2 [0] NCCL INFO AllGather [Copy Engine]: 64 Bytes -> cudaMemcpy
n:1:2 [0] NCCL INFO Channel 01/0 : 0[4] -> 12[1] [send] via NET/IB/0/GDRDMA
n:1:2 [0] NCCL INFO GPU Direct RDMA Enabled for GPU c1000 / HCA 0 (distance 3 <= 4), read 1
n:1:2 [0] NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)
n:1:2 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.2<0>

n:1:2 [0] enqueue.cc:1859 NCCL WARN Error : no algorithm/protocol available for function AllGather
[2025-07-01 12:00:00] n:1:2 [0] NCCL INFO Connected all trees
";

fn messages<T>(lines: &[Line], pick: impl Fn(&Message) -> Option<T>) -> Vec<T> {
    lines.iter().filter_map(|line| pick(&line.message)).collect()
}

#[test]
fn a_real_log_is_read_line_by_line() {
    let lines = nccl_log::read(LOG);
    assert_eq!(lines.len(), LOG.iter().filter(|&&b| b == b'\n').count());
    assert!(lines.iter().all(|l| l.level == Level::Info && l.prefix.pid == Some(1201) && l.prefix.device == Some(0)));

    let stages = messages(&lines, |m| if let Message::Init(init) = m { Some((init.stage, init.comm)) } else { None });
    let (first, second) = (0x256e_9790, 0x2d02_7fe0);
    let expected = [first, second].map(|comm| [(Stage::InitStart, comm), (Stage::InitComplete, comm)]);
    assert_eq!(stages, expected.concat());

    let calls: Vec<Coll> = messages(&lines, |m| if let Message::Coll(coll) = m { Some(coll.clone()) } else { None });
    let reductions: Vec<u64> = calls.iter().filter(|c| c.function == "AllReduce").map(|c| c.count).collect();
    assert_eq!(reductions, [1, 2, 3, 4, 5].map(|step| step * 65536));
    assert!(calls.iter().all(|c| c.op_count == 0 && c.nranks == Some(2)));

    let runs: Vec<Tuning> = messages(&lines, |m| if let Message::Tuning(t) = m { Some(t.clone()) } else { None });
    assert_eq!(runs.iter().map(|t| t.bytes).collect::<Vec<_>>(), reductions.iter().map(|n| n * 4).collect::<Vec<_>>());
    let ring = |last| Choice::Classic { algo: "RING".into(), proto: "LL".into(), channels: Some((0, last)) };
    assert_eq!((&runs[0].choice, &runs[1].choice), (&ring(21), &ring(23)));

    let chosen = messages(&lines, |m| if let Message::Net(Net::Chosen(name)) = m { Some(name.clone()) } else { None });
    assert_eq!(chosen, ["Socket", "Socket"]);
    let connected = messages(&lines, |m| if let Message::Connected(c) = m { Some(*c) } else { None });
    assert_eq!(connected, [Connected::Rings { pxn: Some(false), gdr: Some(true) }]);
    let variables = messages(&lines, |m| if let Message::Variable(v) = m { Some(v.clone()) } else { None });
    assert_eq!((variables[0].name.as_str(), variables[0].value.as_str()), ("NCCL_NVLS_ENABLE", "0"));
}

#[test]
fn every_other_form_is_known() {
    let lines = nccl_log::read(OTHER_FORMS.as_bytes());
    assert_eq!(lines.len(), 10);
    let unknown: Vec<&str> = lines.iter().filter(|l| l.message == Message::Other).map(|l| l.text.as_str()).collect();
    assert_eq!(unknown, ["Error : no algorithm/protocol available for function AllGather"], "the text of the warning");
}

#[test]
fn a_log_reads_the_same_in_pieces_of_any_size() {
    let whole = nccl_log::read(LOG);
    for size in [1, 7, 64, 1000] {
        let mut reader = nccl_log::Reader::default();
        let mut lines: Vec<Line> = LOG.chunks(size).flat_map(|piece| reader.feed(piece)).collect();
        lines.extend(reader.end());
        assert_eq!(lines, whole, "in pieces of {size}");
    }
}

#[test]
fn no_bytes_make_the_reader_stumble_or_invent_a_path() {
    let text = [LOG, OTHER_FORMS.as_bytes()].concat();
    let known: Vec<String> = nccl_log::read(&text).iter().filter_map(path).collect();
    // cut off anywhere
    for end in 0..text.len().min(6000) {
        nccl_log::read(&text[..end]);
    }
    // bytes changed, dropped, doubled
    let mut state = 1u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    for _ in 0..300 {
        let mut bytes = text.clone();
        for _ in 0..20 {
            let at = random(bytes.len());
            match random(3) {
                0 => bytes[at] = random(256) as u8,
                1 => drop(bytes.drain(at..(at + random(40)).min(bytes.len()))),
                _ => {
                    let copy = bytes[at..(at + random(80)).min(bytes.len())].to_vec();
                    let to = random(bytes.len());
                    bytes.splice(to..to, copy);
                }
            }
        }
        nccl_log::read(&bytes);
    }
    // lines of two writers run into another at any byte: what is still read as a path was one
    let line = b"n:1:2 [0] NCCL INFO AllReduce: 524288 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..23}";
    for cut in 0..line.len() {
        let mixed = [&line[..cut], b"n:1:3 [1] NCCL INFO Connected all trees\n", &line[cut..], b"\n"].concat();
        for found in nccl_log::read(&mixed).iter().filter_map(path) {
            assert!(known.contains(&found), "{found} from {}", String::from_utf8_lossy(&mixed));
        }
    }
}

fn path(line: &Line) -> Option<String> {
    match &line.message {
        Message::Tuning(tuning) => Some(format!("{:?}", tuning.choice)),
        _ => None,
    }
}
