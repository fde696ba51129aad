//! A subscriber of `tracing` that keeps all events of kcp9, for tests of one thread.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::{Debug, Write as _},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, ThreadId},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::DefaultGuard,
};

/// An event as it came.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub name: &'static str,
    pub target: &'static str,
    pub level: Level,
    pub fields: BTreeMap<&'static str, String>,
    /// The message.
    pub text: String,
    /// The spans that it came in, the outermost first.
    pub spans: Vec<Span>,
}

impl Recorded {
    /// The value of a field. Panics if there is none.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// The same of a number.
    pub fn number(&self, name: &str) -> u64 {
        self.field(name).parse().unwrap_or_else(|_| panic!("{name} is no number in {self:?}"))
    }
}

/// A span as it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub name: &'static str,
    pub target: &'static str,
    pub level: Level,
    pub fields: BTreeMap<&'static str, String>,
    parent: Option<u64>,
}

/// Keeps what comes on this thread as long as it lives.
pub struct Collector {
    kept: Arc<Kept>,
    _guard: DefaultGuard,
}

impl Collector {
    /// Collects events of these levels, and of those that are more severe.
    pub fn begin(level: Level) -> Self {
        let kept = Arc::new(Kept { level, next: AtomicU64::new(1), state: Mutex::default() });
        let guard = tracing::subscriber::set_default(Handle(Arc::clone(&kept)));
        Self { kept, _guard: guard }
    }

    /// What has come since the last call.
    pub fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.kept.lock().events)
    }

    /// How many spans live.
    pub fn spans(&self) -> usize {
        self.kept.lock().spans.len()
    }
}

struct Kept {
    level: Level,
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    events: Vec<Recorded>,
    spans: HashMap<u64, (Span, usize)>,
    /// The spans that each thread is in: a span that was made here may be entered elsewhere.
    entered: HashMap<ThreadId, Vec<u64>>,
}

impl State {
    /// The span that this thread is in.
    fn innermost(&self) -> Option<u64> {
        self.entered.get(&thread::current().id())?.last().copied()
    }
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Handle(Arc<Kept>);

impl Subscriber for Handle {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("kcp9") && *metadata.level() <= self.0.level
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let mut state = self.0.lock();
        let around = state.innermost().filter(|_| attributes.is_contextual());
        let parent = attributes.parent().map(Id::into_u64).or(around);
        let metadata = attributes.metadata();
        let (name, target, level) = (metadata.name(), metadata.target(), *metadata.level());
        let span = Span { name, target, level, fields: fields.0, parent };
        state.spans.insert(id, (span, 1));
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let text = fields.0.remove("message").unwrap_or_default();
        let metadata = event.metadata();
        let mut state = self.0.lock();
        let mut spans = Vec::new();
        let around = state.innermost().filter(|_| event.is_contextual());
        let mut next = event.parent().map(Id::into_u64).or(around);
        while let Some((span, _)) = next.and_then(|id| state.spans.get(&id)) {
            spans.insert(0, span.clone());
            next = span.parent;
        }
        let (name, target, level) = (metadata.name(), metadata.target(), *metadata.level());
        state.events.push(Recorded { name, target, level, fields: fields.0, text, spans });
    }

    fn enter(&self, span: &Id) {
        self.0.lock().entered.entry(thread::current().id()).or_default().push(span.into_u64());
    }

    fn exit(&self, span: &Id) {
        let entered = self.0.lock().entered.get_mut(&thread::current().id()).and_then(Vec::pop);
        assert_eq!(entered, Some(span.into_u64()), "spans are left in the order in which they were entered");
    }

    fn clone_span(&self, id: &Id) -> Id {
        if let Some((_, count)) = self.0.lock().spans.get_mut(&id.into_u64()) {
            *count += 1;
        }
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut state = self.0.lock();
        let Some((_, count)) = state.spans.get_mut(&id.into_u64()) else { return false };
        *count -= 1;
        let is_over = *count == 0;
        if is_over {
            state.spans.remove(&id.into_u64());
        }
        is_over
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        write!(text, "{value:?}").expect("a string takes all");
        self.0.insert(field.name(), text);
    }
}
