//! Modules and their kernels.

use std::ffi::{CStr, CString, c_int};

use cudarc::driver::sys::{self, CUresult};

use super::{CudaError, Result, out};

/// A loaded module; never unloaded.
#[derive(Debug, Clone, Copy)]
pub struct Module(sys::CUmodule);

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A kernel of a module.
#[derive(Debug, Clone, Copy)]
pub struct Kernel(pub(super) sys::CUfunction);

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Module {
    /// Compiles PTX for the current context's GPU.
    pub fn load(ptx: &CStr) -> Result<Module> {
        // SAFETY: the text ends with a zero byte, which is how the driver tells PTX's length.
        out("cuModuleLoadData", |p| unsafe { sys::cuModuleLoadData(p, ptx.as_ptr().cast()) }).map(Module)
    }

    /// Finds a kernel and loads it.
    ///
    /// With lazy loading, the driver's default, a kernel that is first loaded by its launch may have to wait for the
    /// GPU; beside a collective that waits for another rank that would never end. Asking for an attribute loads it.
    pub fn kernel(self, name: &str) -> Result<Kernel> {
        let missing = || CudaError::new("cuModuleGetFunction", CUresult::CUDA_ERROR_NOT_FOUND);
        let name = CString::new(name).map_err(|_| missing())?;
        // SAFETY: the module is never unloaded, and the name ends with a zero byte.
        let function = out("cuModuleGetFunction", |p| unsafe { sys::cuModuleGetFunction(p, self.0, name.as_ptr()) })?;
        let registers = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
        // SAFETY: the pointer is good for one int, and the function has just been found.
        out("cuFuncGetAttribute", |p: *mut c_int| unsafe { sys::cuFuncGetAttribute(p, registers, function) })?;
        Ok(Kernel(function))
    }
}
