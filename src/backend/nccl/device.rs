//! The GPUs that ranks run on, with their kernels.

use std::collections::{BTreeSet, HashMap};
use std::ffi::CString;
use std::sync::{Arc, OnceLock};

use super::driver::{self, Context, Cuda, CudaError, Gpu, Kernel, Module};
use crate::case::Case;
use crate::kernels::{self, Action};
use crate::oracle::{Data, Plan};

/// A visible GPU, asked what it is.
///
/// Work needs its context, which is made only then: it takes memory, and a GPU in exclusive-process mode grants it to one
/// process alone. A coordinator of other processes never makes it.
pub struct Visible {
    gpu: Gpu,
    /// The driver's number, among the visible ones.
    pub ordinal: u32,
    /// The model.
    pub name: String,
    /// PCI bus id.
    pub bus: String,
    total: u64,
    opened: OnceLock<Arc<Device>>,
}

impl Visible {
    /// The GPU of this number.
    pub fn find(cuda: Cuda, ordinal: u32) -> Result<Visible, CudaError> {
        let gpu = cuda.gpu(ordinal)?;
        let (name, bus, total) = (gpu.name()?, gpu.bus()?, gpu.memory()?);
        Ok(Visible { gpu, ordinal, name, bus, total, opened: OnceLock::new() })
    }

    /// Makes its context, the first time.
    pub fn open(&self) -> Result<Arc<Device>, CudaError> {
        if let Some(device) = self.opened.get() {
            return Ok(Arc::clone(device));
        }
        let device = Arc::new(Device::open(self.gpu, self.ordinal)?);
        Ok(Arc::clone(self.opened.get_or_init(|| device)))
    }

    /// Bytes that can be had at most: what was free when it was opened, or all that there are.
    pub fn memory(&self) -> u64 {
        self.opened.get().map_or(self.total, |device| device.free)
    }
}

/// A GPU in use.
pub struct Device {
    /// The driver's number, among the visible ones.
    pub ordinal: u32,
    /// Its primary context.
    pub context: Context,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes that were free before anything was allocated.
    free: u64,
    major: u32,
    module: OnceLock<Module>,
}

impl Device {
    fn open(gpu: Gpu, ordinal: u32) -> Result<Device, CudaError> {
        let context = gpu.context()?;
        context.activate()?;
        Ok(Device {
            ordinal,
            context,
            multiprocessors: gpu.multiprocessors()?,
            free: driver::free_memory()?,
            major: gpu.compute_major()?,
            module: OnceLock::new(),
        })
    }

    /// The kernels that `cases` need. The PTX is compiled by the first call for this GPU.
    pub fn kernels(&self, cases: &[Case], ranks: u32) -> Result<Arc<Kernels>, CudaError> {
        self.context.activate()?;
        let module = match self.module.get() {
            Some(module) => *module,
            None => {
                // PTX is text: a zero byte can only end it.
                let text = kernels::ptx(self.major).trim_end_matches('\0');
                let module = Module::load(&CString::new(text).unwrap_or_default())?;
                *self.module.get_or_init(|| module)
            }
        };
        let names = names(cases, ranks);
        let of_name = names.into_iter().map(|name| Ok((name, module.kernel(name)?))).collect::<Result<_, _>>()?;
        Ok(Arc::new(Kernels {
            module,
            of_name,
            guard: module.kernel(kernels::GUARD)?,
            fingerprint: module.kernel(kernels::FINGERPRINT)?,
        }))
    }
}

/// Entry names of all kernels that fill, poison and check `cases`.
fn names(cases: &[Case], ranks: u32) -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for case in cases {
        if !seen.insert((case.primitive, case.op, case.dtype, Data::of(&case.variants) as u32)) {
            continue;
        }
        let plan = Plan::of(case, 0, ranks, 0);
        for action in [Action::Fill, Action::Poison, Action::Check] {
            names.insert(kernels::name(action, false, plan.params()));
            if case.primitive.unit().reduces() {
                names.insert(kernels::name(action, true, plan.params()));
            }
        }
    }
    names
}

/// Kernels loaded on one GPU.
pub struct Kernels {
    module: Module,
    of_name: HashMap<&'static str, Kernel>,
    /// Counts bytes of a guard zone that are not as they were.
    pub guard: Kernel,
    /// Adds up a fingerprint.
    pub fingerprint: Kernel,
}

impl Kernels {
    /// One of them; one that no case announced is loaded now.
    pub fn get(&self, name: &'static str) -> Result<Kernel, CudaError> {
        self.of_name.get(name).map_or_else(|| self.module.kernel(name), |kernel| Ok(*kernel))
    }
}

/// How the GPUs of several ranks are linked: `nvlink`, `pcie`, `same-gpu`, or empty where the driver does not say.
///
/// The driver API names no link type. Native atomics to a peer exist over NVLink only, so they tell the two apart; a
/// pair that cannot reach each other goes over PCIe and host memory. The weakest pair decides.
pub fn link(gpus: &[Arc<Visible>]) -> String {
    let mut links = Vec::new();
    for (i, a) in gpus.iter().enumerate() {
        for b in &gpus[..i] {
            if a.ordinal != b.ordinal {
                links.push(a.gpu.link(b.gpu).ok());
            }
        }
    }
    weakest(gpus.len(), &links).to_owned()
}

/// `links`: (access, native atomics) of each pair of different GPUs, `None` where the driver did not answer.
fn weakest(ranks: usize, links: &[Option<(bool, bool)>]) -> &'static str {
    if links.is_empty() {
        return if ranks > 1 { "same-gpu" } else { "" };
    }
    if links.iter().any(Option::is_none) {
        return "";
    }
    if links.iter().flatten().all(|(access, atomics)| *access && *atomics) { "nvlink" } else { "pcie" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weakest_pair_names_the_link() {
        let (nvlink, pcie, unreachable) = (Some((true, true)), Some((true, false)), Some((false, false)));
        assert_eq!(weakest(1, &[]), "");
        assert_eq!(weakest(2, &[]), "same-gpu");
        assert_eq!(weakest(3, &[nvlink, nvlink, nvlink]), "nvlink");
        assert_eq!(weakest(3, &[nvlink, pcie, nvlink]), "pcie");
        assert_eq!(weakest(2, &[unreachable]), "pcie");
        assert_eq!(weakest(2, &[None]), "");
    }
}
