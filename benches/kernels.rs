//! Throughput of the fill and check kernels on a GPU, beside that of a copy: `cargo bench --bench kernels [-- RANKS]`.
//!
//! Prints, for every op and dtype, GB/s of memory written by fills and read by checks of 1 GiB, as if the inputs were those
//! of RANKS ranks, and what share of the copy bandwidth (bytes read plus bytes written) the check reaches.

use collcheck::backend::nccl::{NcclBackend, Options};
use collcheck::backend::{Backend, Buffer, Call, Content, Making, Need, Placement, Region, Station};
use collcheck::case::{Case, DType, Op, Primitive};
use collcheck::oracle::Plan;

const BYTES: u64 = 1 << 30;
const ROUNDS: usize = 7;

fn main() -> anyhow::Result<()> {
    let ranks: u32 = std::env::args().skip(1).find_map(|a| a.parse().ok()).unwrap_or(2);
    let backend = match NcclBackend::new(Options { ranks: Some(1), ..Options::default() }) {
        Ok(backend) => backend,
        Err(why) => {
            println!("not measured: {why}");
            return Ok(());
        }
    };
    let cases: Vec<Case> = Op::ALL
        .iter()
        .flat_map(|op| DType::ALL.map(|d| format!("all_reduce::{op}::{d}::1GiB").parse::<Case>()))
        .collect::<Result<_, _>>()?;
    let mut stations = backend.open(&cases, &Making::default())?;
    let station = stations.first_mut().ok_or_else(|| anyhow::anyhow!("no station"))?;
    station.enter()?;
    station.prepare(&Need { send_bytes: BYTES, recv_bytes: BYTES, ..Need::default() })?;

    let copy = copy_bandwidth(station.as_mut())?;
    println!(
        "{} | copy of 1 GiB: {copy:.0} GB/s read and written | inputs of {ranks} ranks",
        backend.environment().device
    );
    println!("{:<8} {:<9} {:>10} {:>10} {:>8}", "op", "dtype", "fill GB/s", "check GB/s", "of copy");
    let mut worst = f64::INFINITY;
    for case in &cases {
        let plan = Plan::new(1, Primitive::AllReduce, case.op, case.dtype, ranks, 0);
        let (fill, check) = kernels(station.as_mut(), &plan)?;
        worst = worst.min(check / copy);
        let op = case.op.map_or("none", Op::name);
        println!("{op:<8} {:<9} {fill:>10.0} {check:>10.0} {:>7.0}%", case.dtype.name(), 100.0 * check / copy);
    }
    println!("lowest check: {:.0}% of copy", 100.0 * worst);
    Ok(())
}

/// A one-rank all_reduce is a copy of the send buffer.
fn copy_bandwidth(station: &mut dyn Station) -> anyhow::Result<f64> {
    let case: Case = "all_reduce::sum::float::1GiB".parse()?;
    let plan = Plan::new(1, case.primitive, case.op, case.dtype, 1, 0);
    let call = Call {
        case: &case,
        workload: case.workload(1),
        placement: Placement::OutOfPlace,
        plan: &plan,
        base: 0,
        twist: None,
    };
    let us = median(station, |station| Ok(station.launch(std::slice::from_ref(&call))?))?;
    Ok(2.0 * BYTES as f64 / us / 1e3)
}

fn kernels(station: &mut dyn Station, plan: &Plan) -> anyhow::Result<(f64, f64)> {
    let region =
        |content| Region { buffer: Buffer::Recv, start: 0, len: BYTES / plan.dtype().size(), plan, content, base: 0 };
    let fill = median(station, |s| Ok(s.fill(0, &region(Content::Input { rank: 0, element: 0 }))?))?;
    station.fill(0, &region(Content::Reduced { element: 0 }))?;
    let check = median(station, |s| Ok(s.check(0, &region(Content::Reduced { element: 0 }))?))?;
    let verdict = station.verdict(0, plan.dtype())?;
    anyhow::ensure!(verdict.wrong == 0, "{} elements wrong of what was written", verdict.wrong);
    Ok((BYTES as f64 / fill / 1e3, BYTES as f64 / check / 1e3))
}

/// The median device time of `work` in microseconds, after one round that does not count.
fn median(
    station: &mut dyn Station,
    mut work: impl FnMut(&mut dyn Station) -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    work(station)?;
    station.mark()?;
    for _ in 0..ROUNDS {
        work(station)?;
        station.mark()?;
    }
    let mut times = station.intervals()?.swap_remove(0);
    times.sort_by(f32::total_cmp);
    Ok(f64::from(times[ROUNDS / 2]))
}
