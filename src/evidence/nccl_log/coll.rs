//! A collective or a send or receive, as a rank called it (`NCCL_DEBUG_SUBSYS=COLL`; enqueue.cc, 2.18 to 2.30).
//!
//! ```text
//! AllReduce: opCount 0 sendbuff 0x7f.. recvbuff 0x7f.. count 65536 datatype 7 op 0 root 0 comm 0x13.. [nranks=2] stream (nil)
//! ```

use super::scan::Scan;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coll {
    /// As `AllReduce` or `Send`.
    pub function: String,
    /// Counts launch plans, and since 2.27.3 only those with work for proxies: on one node it may stay 0. Align ranks by the
    /// ordinal of a call in its process and communicator instead.
    pub op_count: u64,
    /// Address of the send buffer; null for a send, which NCCL prints with its buffer as the receive buffer.
    pub send: u64,
    /// Address of the receive buffer.
    pub recv: u64,
    /// Elements, as the caller gave them.
    pub count: u64,
    /// `ncclDataType_t`.
    pub datatype: i32,
    /// `ncclRedOp_t`.
    pub op: i64,
    /// The root, or the peer of a send or receive.
    pub root: i64,
    /// The communicator's address, which names it within its process.
    pub comm: u64,
    /// Ranks of the communicator; `None` where the line is cut off there.
    pub nranks: Option<u32>,
}

impl Coll {
    pub(super) fn read(text: &str) -> Option<Coll> {
        let mut scan = Scan(text);
        let function = scan.word()?.to_owned();
        scan.eat(": opCount ")?;
        let op_count = scan.hex()?;
        scan.eat(" sendbuff ")?;
        let send = scan.hex()?;
        scan.eat(" recvbuff ")?;
        let recv = scan.hex()?;
        scan.eat(" count ")?;
        let count = scan.number()?;
        scan.eat(" datatype ")?;
        let datatype = scan.number()?;
        scan.eat(" op ")?;
        let op = scan.number()?;
        scan.eat(" root ")?;
        let root = scan.number()?;
        scan.eat(" comm ")?;
        let comm = scan.hex()?;
        // without what follows, the address itself may be cut off
        scan.eat(" ")?;
        let nranks = scan.eat("[nranks=").and_then(|()| scan.until("]"))?.parse().ok();
        Some(Coll { function, op_count, send, recv, count, datatype, op, root, comm, nranks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "Send: opCount 1f sendbuff 0x7f00 recvbuff (nil) count 65536 datatype 7 op 0 root 1 comm 0x13144a00 [nranks=2] stream (nil)";

    #[test]
    fn a_call_is_read_with_all_that_ranks_must_agree_on() {
        let expected = Coll {
            function: "Send".into(),
            op_count: 31,
            send: 0x7f00,
            recv: 0,
            count: 65536,
            datatype: 7,
            op: 0,
            root: 1,
            comm: 0x1314_4a00,
            nranks: Some(2),
        };
        assert_eq!(Coll::read(LINE), Some(expected));
    }

    #[test]
    fn a_call_that_is_cut_off_is_no_call() {
        for end in 0..LINE.find("]").unwrap() {
            assert_eq!(Coll::read(&LINE[..end]), None, "{}", &LINE[..end]);
        }
    }
}
