//! NCCL's C interface: the types and the table of functions, as `nccl.h` declares them from 2.19 on.
//!
//! Results, reductions and data types are plain integers: newer libraries return codes that an older header does not
//! know, and reductions are made at run time, so that no Rust enum can hold them.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use libloading::os::unix::Library;

use crate::case::{DType, Op};

/// `ncclComm_t`.
pub type Comm = *mut c_void;
/// `cudaStream_t`, the same pointer as the driver's `CUstream`.
pub type Stream = *mut c_void;
/// `ncclResult_t`.
pub type Code = c_int;
/// `ncclDataType_t`.
pub type DataType = c_int;
/// `ncclRedOp_t`.
pub type RedOp = c_int;

/// `ncclScalarDevice`: the scalar is in device memory, and is read while the collective runs.
pub const SCALAR_DEVICE: c_int = 0;
/// `ncclScalarHostImmediate`: the scalar is read before the call returns.
pub const SCALAR_HOST_IMMEDIATE: c_int = 1;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    /// Opaque.
    pub internal: [u8; 128],
}

/// `ncclWindow_t`.
pub type Window = *mut c_void;

/// `ncclConfig_t` up to the fields of NCCL 2.27.3, of which no more is passed than is asked for.
///
/// Every library copies `size` bytes, at most as many as it knows, and takes its own defaults for the fields that are
/// younger than `version`. So the layout of 2.17, the first 48 bytes, serves all libraries, and a younger one only those
/// that have its fields. The last four of the 48 bytes are padding there and a field from 2.25 on; that is why `version`
/// must tell the layout and not the library.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    comm_name: *const c_char,
    collnet_enable: c_int,
    cta_policy: c_int,
    shrink_share: c_int,
    nvls_ctas: c_int,
}

/// `NCCL_CONFIG_UNDEF_INT`.
const UNDEFINED: c_int = c_int::MIN;

impl Config {
    /// All defaults.
    pub fn new() -> Config {
        Config {
            size: std::mem::offset_of!(Config, comm_name),
            magic: 0xcafe_beef,
            version: 21_700,
            blocking: UNDEFINED,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: ptr::null(),
            split_share: UNDEFINED,
            traffic_class: UNDEFINED,
            comm_name: ptr::null(),
            collnet_enable: UNDEFINED,
            cta_policy: UNDEFINED,
            shrink_share: UNDEFINED,
            nvls_ctas: UNDEFINED,
        }
    }

    /// Calls return before they are done.
    pub fn nonblocking(self) -> Config {
        Config { blocking: 0, ..self }
    }

    /// How kernels share the GPU. Takes the layout of 2.27.3: not for older libraries.
    pub fn cta_policy(self, policy: c_int) -> Config {
        Config { size: size_of::<Config>(), version: 22_703, cta_policy: policy, ..self }
    }
}

/// `ncclDataType_t` of a data type.
pub const fn data_type(dtype: DType) -> DataType {
    match dtype {
        DType::Int8 => 0,
        DType::Uint8 => 1,
        DType::Int32 => 2,
        DType::Uint32 => 3,
        DType::Int64 => 4,
        DType::Uint64 => 5,
        DType::Half => 6,
        DType::Float => 7,
        DType::Double => 8,
        DType::Bfloat16 => 9,
        DType::F8e4m3 => 10,
        DType::F8e5m2 => 11,
    }
}

/// `ncclRedOp_t` of a built-in reduction; `None` for mulsum, which is made for each communicator.
pub const fn built_in(op: Op) -> Option<RedOp> {
    match op {
        Op::Sum => Some(0),
        Op::Prod => Some(1),
        Op::Max => Some(2),
        Op::Min => Some(3),
        Op::Avg => Some(4),
        Op::Mulsum => None,
    }
}

/// The name of a result code, as in `nccl.h` of 2.32.
pub fn code_name(code: Code) -> String {
    let known = [
        "ncclSuccess",
        "ncclUnhandledCudaError",
        "ncclSystemError",
        "ncclInternalError",
        "ncclInvalidArgument",
        "ncclInvalidUsage",
        "ncclRemoteError",
        "ncclInProgress",
        "ncclTimeout",
    ];
    let name = usize::try_from(code).ok().and_then(|index| known.get(index));
    name.map_or_else(|| format!("ncclResult {code}"), |name| (*name).to_owned())
}

/// `ncclSuccess`.
pub const SUCCESS: Code = 0;
/// `ncclInternalError`.
pub const INTERNAL_ERROR: Code = 3;
/// `ncclInvalidArgument`.
pub const INVALID_ARGUMENT: Code = 4;
/// `ncclInvalidUsage`.
pub const INVALID_USAGE: Code = 5;
/// `ncclInProgress`: nonblocking communicators answer it, also those that the user made so by `NCCL_COMM_BLOCKING=0`.
pub const IN_PROGRESS: Code = 7;

/// `NCCL_WIN_COLL_SYMMETRIC`: the window lies at the same offset on all ranks.
pub const WINDOW_SYMMETRIC: c_int = 1;

/// Defines [`Api`] and its loader of one list, so that a function is one entry.
macro_rules! table {
    (
        $(required $name:ident = $symbol:literal: fn($($arg:ty),*) $(-> $ret:ty)?;)*
        $(optional $opt_name:ident = $opt_symbol:literal: fn($($opt_arg:ty),*) $(-> $opt_ret:ty)?;)*
    ) => {
        /// The functions of one loaded library.
        pub struct Api {
            $(#[doc = $symbol] pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(#[doc = $opt_symbol] pub $opt_name: Option<unsafe extern "C" fn($($opt_arg),*) $(-> $opt_ret)?>,)*
        }

        impl Api {
            /// Looks all of them up; names the first required one that is missing.
            ///
            /// # Safety
            /// The library must be NCCL 2.x, and must stay loaded as long as the table is used.
            pub unsafe fn load(library: &Library) -> Result<Api, &'static str> {
                // SAFETY: the types are those of `nccl.h`, whose interface NCCL 2 keeps.
                unsafe {
                    Ok(Api {
                        $($name: *library.get($symbol).map_err(|_| $symbol)?,)*
                        $($opt_name: library.get($opt_symbol).ok().map(|f| *f),)*
                    })
                }
            }
        }
    };
}

table! {
    required error_string = "ncclGetErrorString": fn(Code) -> *const c_char;
    required last_error = "ncclGetLastError": fn(Comm) -> *const c_char;
    required unique_id = "ncclGetUniqueId": fn(*mut UniqueId) -> Code;
    required comm_init_rank_config = "ncclCommInitRankConfig": fn(*mut Comm, c_int, UniqueId, c_int, *mut Config) -> Code;
    required comm_split = "ncclCommSplit": fn(Comm, c_int, c_int, *mut Comm, *mut Config) -> Code;
    required comm_destroy = "ncclCommDestroy": fn(Comm) -> Code;
    required comm_abort = "ncclCommAbort": fn(Comm) -> Code;
    required comm_async_error = "ncclCommGetAsyncError": fn(Comm, *mut Code) -> Code;
    required comm_count = "ncclCommCount": fn(Comm, *mut c_int) -> Code;
    required comm_user_rank = "ncclCommUserRank": fn(Comm, *mut c_int) -> Code;
    required comm_register = "ncclCommRegister": fn(Comm, *mut c_void, usize, *mut *mut c_void) -> Code;
    required comm_deregister = "ncclCommDeregister": fn(Comm, *mut c_void) -> Code;
    required mem_alloc = "ncclMemAlloc": fn(*mut *mut c_void, usize) -> Code;
    required mem_free = "ncclMemFree": fn(*mut c_void) -> Code;
    required group_start = "ncclGroupStart": fn() -> Code;
    required group_end = "ncclGroupEnd": fn() -> Code;
    required create_pre_mul_sum = "ncclRedOpCreatePreMulSum":
        fn(*mut RedOp, *mut c_void, DataType, c_int, Comm) -> Code;
    required destroy_red_op = "ncclRedOpDestroy": fn(RedOp, Comm) -> Code;
    required all_reduce = "ncclAllReduce":
        fn(*const c_void, *mut c_void, usize, DataType, RedOp, Comm, Stream) -> Code;
    required broadcast = "ncclBroadcast":
        fn(*const c_void, *mut c_void, usize, DataType, c_int, Comm, Stream) -> Code;
    required reduce = "ncclReduce":
        fn(*const c_void, *mut c_void, usize, DataType, RedOp, c_int, Comm, Stream) -> Code;
    required all_gather = "ncclAllGather": fn(*const c_void, *mut c_void, usize, DataType, Comm, Stream) -> Code;
    required reduce_scatter = "ncclReduceScatter":
        fn(*const c_void, *mut c_void, usize, DataType, RedOp, Comm, Stream) -> Code;
    required send = "ncclSend": fn(*const c_void, usize, DataType, c_int, Comm, Stream) -> Code;
    required recv = "ncclRecv": fn(*mut c_void, usize, DataType, c_int, Comm, Stream) -> Code;

    // From 2.27.3 on.
    optional window_register = "ncclCommWindowRegister": fn(Comm, *mut c_void, usize, *mut Window, c_int) -> Code;
    optional window_deregister = "ncclCommWindowDeregister": fn(Comm, Window) -> Code;

    // From 2.28.3 on; before that the same is done by grouped sends and receives.
    optional alltoall = "ncclAlltoAll": fn(*const c_void, *mut c_void, usize, DataType, Comm, Stream) -> Code;
    optional gather = "ncclGather": fn(*const c_void, *mut c_void, usize, DataType, c_int, Comm, Stream) -> Code;
    optional scatter = "ncclScatter": fn(*const c_void, *mut c_void, usize, DataType, c_int, Comm, Stream) -> Code;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_has_the_layout_of_nccl_2_17_and_with_a_policy_that_of_2_27_3() {
        use std::mem::offset_of;
        assert_eq!([offset_of!(Config, blocking), offset_of!(Config, net_name)], [16, 32]);
        assert_eq!([offset_of!(Config, comm_name), offset_of!(Config, cta_policy)], [48, 60]);
        assert_eq!(size_of::<Config>(), 72);
        let plain = Config::new().nonblocking();
        assert_eq!((plain.size, plain.version, plain.blocking), (48, 21_700, 0));
        let policy = Config::new().cta_policy(2);
        assert_eq!((policy.size, policy.version, policy.blocking, policy.cta_policy), (72, 22_703, UNDEFINED, 2));
    }

    #[test]
    fn result_codes_have_names_and_unknown_ones_their_number() {
        assert_eq!(code_name(0), "ncclSuccess");
        assert_eq!(code_name(INVALID_ARGUMENT), "ncclInvalidArgument");
        assert_eq!(code_name(8), "ncclTimeout");
        assert_eq!(code_name(99), "ncclResult 99");
        assert_eq!(code_name(-3), "ncclResult -3");
    }

    #[test]
    fn data_types_are_numbered_in_their_order() {
        let codes: Vec<DataType> = DType::ALL.into_iter().map(data_type).collect();
        assert_eq!(codes, (0..12).collect::<Vec<_>>());
    }
}
