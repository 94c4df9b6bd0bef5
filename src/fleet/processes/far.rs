//! A worker's way to the others: to the gate of those around it and, as far as ranks are elsewhere, to the coordinator.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::gate::{Gate, Way};
use super::wire::{self, Down, MOST, Up};
use crate::fleet::log::{Doing, Log};
use crate::fleet::protocol::{Report, Request};
use crate::fleet::worker::Meeting;

/// Reports that travel in one frame: however long they are, it is none too large.
const TOGETHER: usize = 128;

/// How one worker meets all others.
pub struct Far {
    gate: Option<Arc<Gate>>,
    ranks: u32,
    stream: Mutex<TcpStream>,
    log: Log,
    /// The present case's number.
    case: AtomicU64,
    /// Nobody meets at gates in it.
    alone: AtomicBool,
}

impl Far {
    /// For a worker that is one of so many ranks.
    pub fn new(gate: Option<Arc<Gate>>, ranks: u32, stream: TcpStream, log: Log) -> Far {
        Far { gate, ranks, stream: Mutex::new(stream), log, case: AtomicU64::new(0), alone: AtomicBool::new(false) }
    }

    /// Whether it can meet others at a gate.
    pub fn has_gate(&self) -> bool {
        self.gate.is_some()
    }

    /// Starts a case.
    pub fn begin(&self, request: &Request, alone: bool) {
        self.log.begin(request.epoch, &request.case.name());
        self.case.store(request.epoch, Ordering::Relaxed);
        self.alone.store(alone, Ordering::Relaxed);
        if let Some(gate) = &self.gate {
            gate.begin(request.epoch);
        }
    }

    /// Ends the case. Those who meet at a gate and are well leave the talking to the last of them.
    pub fn report(&self, mut reports: Vec<Report>) -> io::Result<()> {
        reports.iter_mut().for_each(Report::shorten);
        let case = self.case.load(Ordering::Relaxed);
        self.log.at(Doing::Reported);
        match (self.gate(), &reports[..]) {
            (Some(gate), [own]) if gate.size() > 1 => match gate.leave(own) {
                Way::Met(_) => return Ok(()),
                Way::Speak => {
                    for some in gate.reports().chunks(TOGETHER) {
                        self.stream().write_all(&wire::reports(case, some)?)?;
                    }
                    gate.answer(true);
                    return Ok(());
                }
                Way::Alone => {}
            },
            _ => {}
        }
        wire::send(&mut *self.stream(), &Up::Reports { case, reports })
    }

    fn gate(&self) -> Option<&Gate> {
        self.gate.as_deref().filter(|_| !self.alone.load(Ordering::Relaxed))
    }

    fn stream(&self) -> MutexGuard<'_, TcpStream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, together: u32, well: bool) -> bool {
        let mut stream = self.stream();
        let met = wire::send(&mut *stream, &Up::Meet { together, well }).map(|()| wire::receive(&mut *stream, MOST));
        match met {
            Ok(Ok(Down::Met(all))) => all,
            // The coordinator is gone or has given this worker up: there is nobody to tell anything.
            _ => std::process::exit(1),
        }
    }
}

impl Meeting for Far {
    fn all_well(&self, well: bool) -> bool {
        self.log.at(Doing::Meeting);
        let all = match self.gate().map(|gate| (gate, gate.arrive(well))) {
            Some((_, Way::Met(all))) => all,
            None | Some((_, Way::Alone)) => self.ask(1, well),
            Some((gate, Way::Speak)) => {
                let here = gate.size();
                let all = here == self.ranks || self.ask(here, true);
                gate.answer(all);
                all
            }
        };
        self.log.at(Doing::Beginning);
        all
    }

    fn armed(&self) {
        self.log.armed();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::super::hall::{Hall, Spot};
    use super::*;
    use crate::backend::RankError;

    const RANKS: u32 = 3;

    /// Workers at one gate, but for those without one, and the coordinator's ends of their connections.
    struct Few {
        fars: Vec<Far>,
        ends: Vec<TcpStream>,
        logs: Vec<Log>,
    }

    impl Few {
        fn new(without: &[u32], ranks: u32) -> Few {
            let hall = Hall::new().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut few = Few { fars: Vec::new(), ends: Vec::new(), logs: Vec::new() };
            for slot in 0..RANKS {
                let spot = Spot { site: hall.site(), size: RANKS, slot };
                let gate = (!without.contains(&slot)).then(|| Arc::new(Gate::at(&spot).unwrap()));
                let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let end = listener.accept().unwrap().0;
                end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                few.ends.push(end);
                few.logs.push(Log::allocate());
                few.fars.push(Far::new(gate, ranks, stream, few.logs[slot as usize].clone()));
            }
            few
        }

        fn begin(&self, epoch: u64, alone: bool) {
            let case = "all_reduce::sum::float::8B".parse().unwrap();
            let (seed, warmup, iters, check, tamper, fault) = (0, 0, 1, true, None, None);
            let request = Request { case, ranks: RANKS, seed, epoch, warmup, iters, check, tamper, fault };
            self.fars.iter().for_each(|far| far.begin(&request, alone));
        }

        /// Waits until it can be known of a rank that it has reported, and some time more: what was said until then.
        fn waits(&self, rank: usize) -> Vec<(u32, u64, Vec<u32>)> {
            while self.logs[rank].doing().0 != Doing::Reported {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            self.said()
        }

        /// What has been said so far, in the order of ranks; of reports, their ranks.
        fn said(&self) -> Vec<(u32, u64, Vec<u32>)> {
            let mut all = Vec::new();
            for (rank, mut end) in (0..).zip(&self.ends) {
                end.set_nonblocking(true).unwrap();
                while end.peek(&mut [0]).is_ok() {
                    end.set_nonblocking(false).unwrap();
                    match wire::receive(&mut end, MOST).unwrap() {
                        Up::Reports { case, reports } => {
                            all.push((rank, case, reports.iter().map(|report| report.rank).collect()));
                        }
                        other => panic!("rank {rank} said {other:?}"),
                    }
                    end.set_nonblocking(true).unwrap();
                }
                end.set_nonblocking(false).unwrap();
            }
            all
        }
    }

    fn report(rank: u32, error: Option<RankError>) -> Vec<Report> {
        vec![Report { rank, placements: Vec::new(), error }]
    }

    #[test]
    fn reports_of_one_gate_travel_together() {
        let few = Few::new(&[], RANKS);
        for case in 1..200 {
            few.begin(case, false);
            std::thread::scope(|scope| {
                for (rank, far) in (0..).zip(&few.fars) {
                    scope.spawn(move || {
                        assert!(far.all_well(true), "nobody has to be asked");
                        far.report(report(rank, None)).unwrap();
                    });
                }
            });
            let said = few.said();
            assert!(matches!(&said[..], [(_, number, ranks)] if *number == case && ranks == &[0, 1, 2]), "{said:?}");
        }
    }

    #[test]
    fn a_report_of_an_error_travels_alone_and_at_once_and_so_do_the_others_then() {
        let few = Few::new(&[], RANKS);
        few.begin(5, false);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| few.fars[0].report(report(0, None)).unwrap());
            let early = few.waits(0);
            few.fars[1].report(report(1, Some(RankError::Aborted))).unwrap();
            waits.join().unwrap();
            assert!(early.is_empty(), "{early:?}");
        });
        assert_eq!(few.said(), [(0, 5, vec![0]), (1, 5, vec![1])]);
        few.fars[2].report(report(2, None)).unwrap();
        assert_eq!(few.said(), [(2, 5, vec![2])]);
    }

    #[test]
    fn who_waits_to_report_sends_it_once_the_case_is_given_up() {
        let few = Few::new(&[], RANKS);
        few.begin(5, false);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| few.fars[1].report(report(1, None)).unwrap());
            let early = few.waits(1);
            few.fars[1].gate().unwrap().open();
            waits.join().unwrap();
            assert!(early.is_empty(), "{early:?}");
        });
        assert_eq!(few.said(), [(1, 5, vec![1])]);
    }

    #[test]
    fn where_one_cannot_get_to_the_gate_each_speaks_for_itself() {
        let few = Few::new(&[2], RANKS);
        few.begin(9, true);
        std::thread::scope(|scope| {
            let meets = |(rank, far): (u32, &Far)| {
                let (met, far) = (far.all_well(true), far);
                far.report(report(rank, None)).unwrap();
                met
            };
            let threads: Vec<_> = (0..).zip(&few.fars).map(|one| scope.spawn(move || meets(one))).collect();
            for mut end in &few.ends {
                assert!(matches!(wire::receive(&mut end, MOST), Ok(Up::Meet { together: 1, well: true })));
                wire::send(&mut end, &Down::Met(true)).unwrap();
            }
            threads.into_iter().for_each(|thread| assert!(thread.join().unwrap()));
        });
        assert_eq!(few.said(), [(0, 9, vec![0]), (1, 9, vec![1]), (2, 9, vec![2])]);
    }
}
