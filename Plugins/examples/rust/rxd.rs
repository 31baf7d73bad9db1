//! rxd_plugin.h in Rust, and a small safe layer over it for operators: implement [`Row`] or [`Stream`], list them with
//! [`row`] and [`stream`], and call [`init`] from `rxd_plugin_init`.
//!
//! A panic does not cross the interface: it fails the call, with the panic's message.
#![allow(dead_code)]

use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicPtr, Ordering};

// ---- The header ----

pub const OK: i32 = 0;
pub const DROP: i32 = 1;
pub const FAILED: i32 = 2;
pub const FINISH: i32 = 5;
pub const LAST: i32 = 6;

#[repr(C)]
pub struct Magic {
    name: [u8; 8],
    size: u32,
    contract: u16,
    pointer_bytes: u8,
    little_endian: u8,
    batch_format: u32,
    reserved: u32,
}

pub const MAGIC: Magic = Magic {
    name: *b"rxdplug\0",
    size: std::mem::size_of::<Magic>() as u32,
    contract: 1,
    pointer_bytes: std::mem::size_of::<usize>() as u8,
    little_endian: cfg!(target_endian = "little") as u8,
    batch_format: 1,
    reserved: 0,
};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawValue {
    word: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawText {
    bytes: *const u8,
    count: usize,
}

/// rxd_scope, rxd_output, rxd_instance, rxd_source and rxd_verdicts.
pub type Opaque = c_void;

#[repr(C)]
pub struct RawInput {
    kind: u32,
    argument_count: u32,
    event: RawValue,
    arguments: *const RawValue,
    name: RawText,
}

#[repr(C)]
pub struct RawBatch {
    size: u32,
    count: u32,
    inputs: *const RawInput,
    input_size: usize,
    wall_time: i64,
    monotonic_time: i64,
}

#[repr(C)]
pub struct RawHost {
    size: u32,
    contract: u32,
    kind: extern "C" fn(*const RawValue) -> i32,
    boolean: extern "C" fn(*const RawValue) -> i32,
    integer: extern "C" fn(*const RawValue) -> i64,
    number: extern "C" fn(*const RawValue) -> f64,
    text: extern "C" fn(*mut Opaque, *const RawValue) -> RawText,
    count: extern "C" fn(*mut Opaque, *const RawValue) -> usize,
    member: extern "C" fn(*mut Opaque, *const RawValue, RawText) -> RawValue,
    element: extern "C" fn(*mut Opaque, *const RawValue, usize) -> RawValue,
    entry: extern "C" fn(*mut Opaque, *const RawValue, usize, *mut RawText) -> RawValue,
    json: extern "C" fn(*mut Opaque, *const RawValue) -> RawText,
    make_null: extern "C" fn() -> RawValue,
    make_bool: extern "C" fn(i32) -> RawValue,
    make_int: extern "C" fn(i64) -> RawValue,
    make_double: extern "C" fn(f64) -> RawValue,
    make_timestamp: extern "C" fn(i64) -> RawValue,
    make_duration: extern "C" fn(i64) -> RawValue,
    make_text: extern "C" fn(*mut Opaque, RawText) -> RawValue,
    make_bytes: extern "C" fn(*mut Opaque, RawText) -> RawValue,
    make_list: extern "C" fn(*mut Opaque, *const RawValue, usize) -> RawValue,
    make_object: extern "C" fn(*mut Opaque, *const RawText, *const RawValue, usize) -> RawValue,
    with_member: extern "C" fn(*mut Opaque, *const RawValue, RawText, *const RawValue) -> RawValue,
    parse_json: extern "C" fn(*mut Opaque, RawText, *mut RawValue) -> i32,
    fail: extern "C" fn(*mut Opaque, RawText, RawText),
    log: extern "C" fn(*mut Opaque, RawText, RawText),
    count_up: extern "C" fn(*mut Opaque, RawText, i64),
    send: extern "C" fn(*mut Opaque, usize, *const RawValue),
    reject: extern "C" fn(*mut Opaque, usize, RawText),
    timer: extern "C" fn(*mut Opaque, RawText, i64),
    // The functions of sinks and sources, which this layer does not offer.
    sinks_and_sources: [usize; 10],
    encode: extern "C" fn(*mut Opaque, *const RawValue) -> RawText,
    decode: extern "C" fn(*mut Opaque, RawText, *mut RawValue) -> i32,
    reject_input: usize,
    is_closing: extern "C" fn(*mut Opaque) -> i32,
    finish: extern "C" fn(*mut Opaque, usize),
}

#[repr(C)]
pub struct RawBytes {
    bytes: *const c_void,
    count: usize,
    release: Option<extern "C" fn(*mut RawBytes)>,
    owner: *mut c_void,
}

#[repr(C)]
pub struct RawOpening {
    size: u32,
    is_test: u32,
    instance: *mut Opaque,
    scope: *mut Opaque,
    parameters: RawValue,
    step: RawText,
    state: RawText,
    state_version: u32,
    position: RawText,
    pipeline: RawText,
    component: RawText,
}

type Open = extern "C" fn(*const RawOpening, *mut *mut c_void) -> i32;
type Close = extern "C" fn(*mut c_void);
type RowFunction = extern "C" fn(*mut c_void, *mut Opaque, *mut RawValue, *const RawValue) -> i32;
type Process = extern "C" fn(*mut c_void, *mut Opaque, *const RawBatch, *mut Opaque) -> i32;
type Save = extern "C" fn(*mut c_void, *mut Opaque, *mut RawBytes) -> i32;

#[repr(C)]
pub struct Component {
    size: u32,
    name: RawText,
    kind: RawText,
    open: Option<Open>,
    close: Option<Close>,
    row: Option<RowFunction>,
    process: Option<Process>,
    save: Option<Save>,
    run: Option<extern "C" fn()>,
    write: Option<extern "C" fn()>,
}

#[repr(C)]
pub struct Plugin {
    size: u32,
    component_count: u32,
    components: *const Component,
    component_size: usize,
    spec: RawText,
}

// The pointers refer to constants.
unsafe impl Sync for Component {}
unsafe impl Sync for Plugin {}

static HOST: AtomicPtr<RawHost> = AtomicPtr::new(std::ptr::null_mut());

fn host() -> &'static RawHost {
    unsafe { &*HOST.load(Ordering::Relaxed) }
}

const fn raw(text: &str) -> RawText {
    RawText { bytes: text.as_ptr(), count: text.len() }
}

/// The bytes at `text`, for as long as the call lasts.
unsafe fn bytes<'a>(text: RawText) -> &'a [u8] {
    if text.count == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(text.bytes, text.count)
    }
}

// ---- The safe layer ----

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Absent,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    List,
    Object,
    Timestamp,
    Duration,
    Other,
}

/// A value that lives as long as the call.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    raw: RawValue,
    scope: &'a Scope,
}

/// The scope of the values of one call.
pub struct Scope(*mut Opaque);

impl Scope {
    pub fn text(&self, text: &str) -> Value<'_> {
        Value { raw: (host().make_text)(self.0, raw(text)), scope: self }
    }
    pub fn int(&self, value: i64) -> Value<'_> {
        Value { raw: (host().make_int)(value), scope: self }
    }
}

impl<'a> Value<'a> {
    pub fn kind(&self) -> Kind {
        use Kind::*;
        let all = [Absent, Null, Bool, Int, Uint, Double, Text, Bytes, List, Object, Timestamp, Duration];
        all.get((host().kind)(&self.raw) as usize).copied().unwrap_or(Other)
    }
    pub fn int(&self) -> i64 {
        (host().integer)(&self.raw)
    }
    pub fn number(&self) -> f64 {
        (host().number)(&self.raw)
    }
    /// None if it is not a text.
    pub fn text(&self) -> Option<&'a str> {
        match self.kind() {
            Kind::Text => std::str::from_utf8(unsafe { bytes((host().text)(self.scope.0, &self.raw)) }).ok(),
            _ => None,
        }
    }
    pub fn member(&self, name: &str) -> Value<'a> {
        Value { raw: (host().member)(self.scope.0, &self.raw, raw(name)), scope: self.scope }
    }
    pub fn with(&self, name: &str, value: Value<'a>) -> Value<'a> {
        Value { raw: (host().with_member)(self.scope.0, &self.raw, raw(name), &value.raw), scope: self.scope }
    }
    /// Bytes that `Scope::decode` reads again, for values kept between calls and in a state.
    pub fn encode(&self) -> &'a [u8] {
        unsafe { bytes((host().encode)(self.scope.0, &self.raw)) }
    }
    /// The value as JSON, on one line.
    pub fn json(&self) -> &'a str {
        std::str::from_utf8(unsafe { bytes((host().json)(self.scope.0, &self.raw)) }).unwrap_or("null")
    }
}

impl Scope {
    pub fn decode(&self, bytes: &[u8]) -> Option<Value<'_>> {
        let mut raw = RawValue { word: [0, 0] };
        let text = RawText { bytes: bytes.as_ptr(), count: bytes.len() };
        ((host().decode)(self.0, text, &mut raw) == OK).then(|| Value { raw, scope: self })
    }
}

/// Why an instance cannot be opened, and the path within the parameters, such as `server.port`.
pub struct Refusal {
    pub message: String,
    pub at: &'static str,
}

/// The result of a row for an event. The last two need `"finishes": true` in the spec.
pub enum Verdict<'a> {
    Pass(Value<'a>),
    Drop,
    /// The event passes, and the output completes after it.
    Last(Value<'a>),
    /// The output completes without the event.
    Finish,
}

/// A pure function of an event. It is called on several threads at once.
pub trait Row: Sync + Send + Sized {
    fn open(parameters: Value) -> Result<Self, Refusal>;
    /// The verdict on the event, or the reason why it fails.
    fn row<'a>(&self, scope: &'a Scope, event: Value<'a>) -> Result<Verdict<'a>, String>;
}

pub enum Input<'a> {
    Event(Value<'a>),
    Timer(&'a str),
    Complete,
}

/// Receives the events that an operator emits for one input.
pub struct Output {
    raw: *mut Opaque,
    index: usize,
}

impl Output {
    pub fn send(&mut self, event: Value) {
        (host().send)(self.raw, self.index, &event.raw)
    }
    pub fn reject(&mut self, message: &str) {
        (host().reject)(self.raw, self.index, raw(message))
    }
    /// Completes the output after the events sent so far. Further inputs are ignored.
    pub fn finish(&mut self) {
        (host().finish)(self.raw, self.index)
    }
    /// Starts the timer; replaces a timer of the same name.
    pub fn set_timer(&mut self, name: &str, after: std::time::Duration) {
        (host().timer)(self.raw, raw(name), after.as_nanos().min(i64::MAX as u128) as i64)
    }
    pub fn cancel_timer(&mut self, name: &str) {
        (host().timer)(self.raw, raw(name), -1)
    }
}

/// An operator with state or timers, on its own thread.
pub trait Stream: Send + Sized {
    /// `state`: the bytes returned by `save`, and the version of the spec under which they were saved.
    fn open(parameters: Value, state: Option<(&[u8], u32)>) -> Result<Self, Refusal>;
    fn process<'a>(&mut self, scope: &'a Scope, input: Input<'a>, output: &mut Output);
    fn save(&self) -> Vec<u8>;
}

/// Runs `body`; a panic fails the call.
fn guarded(scope: *mut Opaque, body: impl FnOnce() -> Result<i32, Refusal>) -> i32 {
    let refusal = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => return status,
        Ok(Err(refusal)) => refusal,
        Err(panic) => {
            let why = panic.downcast_ref::<String>().map(String::as_str);
            let why = why.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("");
            Refusal { message: format!("the plugin has panicked: {}", why), at: "" }
        }
    };
    (host().fail)(scope, raw(&refusal.message), raw(refusal.at));
    FAILED
}

unsafe fn hand_out<T>(instance: T, to: *mut *mut c_void) {
    *to = Box::into_raw(Box::new(instance)) as *mut c_void;
}

extern "C" fn close<T>(instance: *mut c_void) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(instance as *mut T) })));
}

extern "C" fn open_row<T: Row>(opening: *const RawOpening, instance: *mut *mut c_void) -> i32 {
    let opening = unsafe { &*opening };
    let scope = Scope(opening.scope);
    guarded(opening.scope, || {
        let made = T::open(Value { raw: opening.parameters, scope: &scope })?;
        unsafe { hand_out(made, instance) };
        Ok(OK)
    })
}

extern "C" fn call_row<T: Row>(
    instance: *mut c_void, raw_scope: *mut Opaque, event: *mut RawValue, _: *const RawValue,
) -> i32 {
    let scope = Scope(raw_scope);
    guarded(raw_scope, || {
        let operator = unsafe { &*(instance as *const T) };
        match operator.row(&scope, Value { raw: unsafe { *event }, scope: &scope }) {
            Ok(Verdict::Pass(result)) => {
                unsafe { *event = result.raw };
                Ok(OK)
            }
            Ok(Verdict::Last(result)) => {
                unsafe { *event = result.raw };
                Ok(LAST)
            }
            Ok(Verdict::Drop) => Ok(DROP),
            Ok(Verdict::Finish) => Ok(FINISH),
            Err(message) => Err(Refusal { message, at: "" }),
        }
    })
}

extern "C" fn open_stream<T: Stream>(opening: *const RawOpening, instance: *mut *mut c_void) -> i32 {
    let opening = unsafe { &*opening };
    let scope = Scope(opening.scope);
    guarded(opening.scope, || {
        let has_state = !opening.state.bytes.is_null();
        let state = has_state.then(|| (unsafe { bytes(opening.state) }, opening.state_version));
        let made = T::open(Value { raw: opening.parameters, scope: &scope }, state)?;
        unsafe { hand_out(made, instance) };
        Ok(OK)
    })
}

extern "C" fn call_process<T: Stream>(
    instance: *mut c_void, raw_scope: *mut Opaque, batch: *const RawBatch, raw_output: *mut Opaque,
) -> i32 {
    let scope = Scope(raw_scope);
    guarded(raw_scope, || {
        let operator = unsafe { &mut *(instance as *mut T) };
        let batch = unsafe { &*batch };
        for index in 0..batch.count as usize {
            // A newer rxd may pass larger inputs, so `input_size` is the stride.
            let place = batch.inputs as usize + index * batch.input_size;
            let input = unsafe { &*(place as *const RawInput) };
            let input = match input.kind {
                0 => Input::Event(Value { raw: input.event, scope: &scope }),
                1 => Input::Timer(std::str::from_utf8(unsafe { bytes(input.name) }).unwrap_or("")),
                2 => Input::Complete,
                _ => continue,
            };
            operator.process(&scope, input, &mut Output { raw: raw_output, index });
        }
        Ok(OK)
    })
}

extern "C" fn release(bytes: *mut RawBytes) {
    drop(unsafe { Box::from_raw((*bytes).owner as *mut Vec<u8>) });
}

extern "C" fn call_save<T: Stream>(instance: *mut c_void, scope: *mut Opaque, state: *mut RawBytes) -> i32 {
    guarded(scope, || {
        let saved = Box::new(unsafe { &*(instance as *const T) }.save());
        let (bytes, count) = (saved.as_ptr() as *const c_void, saved.len());
        let owner = Box::into_raw(saved) as *mut c_void;
        unsafe { *state = RawBytes { bytes, count, release: Some(release), owner } };
        Ok(OK)
    })
}

const fn component(name: &'static str, open: Open, close: Close) -> Component {
    Component {
        size: std::mem::size_of::<Component>() as u32,
        name: raw(name),
        kind: raw("operator"),
        open: Some(open),
        close: Some(close),
        row: None,
        process: None,
        save: None,
        run: None,
        write: None,
    }
}

/// An operator with `form: row` in the spec.
pub const fn row<T: Row>(name: &'static str) -> Component {
    Component { row: Some(call_row::<T>), ..component(name, open_row::<T>, close::<T>) }
}

/// Any other operator.
pub const fn stream<T: Stream>(name: &'static str) -> Component {
    Component {
        process: Some(call_process::<T>),
        save: Some(call_save::<T>),
        ..component(name, open_stream::<T>, close::<T>)
    }
}

pub const fn plugin(components: &'static [Component], spec: &'static str) -> Plugin {
    Plugin {
        size: std::mem::size_of::<Plugin>() as u32,
        component_count: components.len() as u32,
        components: components.as_ptr(),
        component_size: std::mem::size_of::<Component>(),
        spec: raw(spec),
    }
}

/// Implements `rxd_plugin_init`.
///
/// # Safety
/// The pointers must be those that rxd has passed.
pub unsafe fn init(
    plugin: &'static Plugin, contract: u32, offered: *const RawHost, result: *mut *const Plugin, problem: *mut RawText,
) -> i32 {
    if contract < 1 || ((*offered).size as usize) < std::mem::size_of::<RawHost>() {
        *problem = raw("this plugin needs a newer rxd");
        return FAILED;
    }
    HOST.store(offered as *mut RawHost, Ordering::Relaxed);
    // A panic becomes the failure of a call, which rxd logs; the default message would go to standard error, too.
    std::panic::set_hook(Box::new(|_| {}));
    *result = plugin;
    OK
}

pub use RawHost as Host;
pub use RawText as Text;
