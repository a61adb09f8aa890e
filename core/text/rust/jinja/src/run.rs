//! Renders a program.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use crate::cycles;
use crate::error::{fail, unsupported, Kind as Fault, Result};
use crate::syntax::{Body, Expr, For, Kind, MacroCode, Name, Program, Statement, Target};
use crate::value::{Args, Dict, Value};
use crate::work;

/// What renderings have in common.
pub struct Environment {
    /// Expressions and statements of one rendering.
    pub most_steps: u64,
    /// Whether there is time left; asked before what takes time that grows with its operands.
    pub goes_on: fn() -> bool,
    /// The local time in the format of strftime.
    pub time: fn(&str) -> std::result::Result<String, String>,
}

/// A rendered text, and the bytes of it within `{% generation %}` blocks, in order.
pub struct Rendered {
    pub text: String,
    pub generated: Vec<(usize, usize)>,
    /// A block stands in a macro, or in what a filter or `set` takes the text of: where it comes to is not known.
    pub generated_elsewhere: bool,
}

/// Calls of macros and of recursive loops within each other.
const MOST_CALLS: usize = 200;

pub struct Scope {
    variables: RefCell<Vec<(Name, Value)>>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    fn new(parent: Option<&Rc<Scope>>) -> Rc<Self> {
        Rc::new(Self { variables: RefCell::default(), parent: parent.map(Rc::clone) })
    }

    pub fn empty(&self) {
        drop(self.variables.try_borrow_mut().map(|mut own| std::mem::take(&mut *own)));
    }

    pub fn set(&self, name: Name, value: Value) {
        let mut variables = self.variables.borrow_mut();
        match variables.iter_mut().find(|(own, _)| *own == name) {
            Some(place) => place.1 = value,
            None => variables.push((name, value)),
        }
    }

    fn get(&self, name: Name) -> Option<Value> {
        let mut scope = self;
        loop {
            let found = scope.variables.borrow().iter().find(|(own, _)| *own == name).map(|(_, value)| value.clone());
            if found.is_some() {
                return found;
            }
            scope = scope.parent.as_deref()?;
        }
    }
}

pub struct Macro {
    pub code: Arc<MacroCode>,
    scope: Rc<Scope>,
}

/// `loop`, and the loop's function in a recursive one.
pub struct LoopState {
    items: RefCell<VecDeque<Value>>,
    at: std::cell::Cell<usize>,
    length: usize,
    depth: usize,
    before: RefCell<Option<Value>>,
    current: RefCell<Value>,
    changed: RefCell<Option<Vec<Value>>>,
    code: Arc<For>,
    scope: Rc<Scope>,
}

impl LoopState {
    pub fn empty(&self) {
        drop(self.items.try_borrow_mut().map(|mut own| std::mem::take(&mut *own)));
        drop(self.before.try_borrow_mut().map(|mut own| own.take()));
        drop(self.current.try_borrow_mut().map(|mut own| std::mem::replace(&mut *own, Value::None)));
        drop(self.changed.try_borrow_mut().map(|mut own| own.take()));
    }

    pub fn length(&self) -> usize {
        self.length
    }

    pub fn name(&self) -> String {
        format!("<LoopContext {}/{}>", self.at.get() + 1, self.length)
    }

    pub fn attribute(&self, name: &str) -> Option<Value> {
        let (at, length) = (self.at.get(), self.length);
        let int = |value: usize| Value::Int(value as i128);
        Some(match name {
            "index" => int(at + 1),
            "index0" => int(at),
            "revindex" => int(length - at),
            "revindex0" => int(length - at - 1),
            "first" => Value::Bool(at == 0),
            "last" => Value::Bool(at + 1 == length),
            "length" => int(length),
            "depth" => int(self.depth + 1),
            "depth0" => int(self.depth),
            "previtem" => {
                self.before.borrow().clone().unwrap_or_else(|| Value::Undefined("there is no previous item".into()))
            }
            "nextitem" => self
                .items
                .borrow()
                .front()
                .cloned()
                .unwrap_or_else(|| Value::Undefined("there is no next item".into())),
            _ => return None,
        })
    }

    pub fn cycle(&self, items: &[Value]) -> Result<Value> {
        if items.is_empty() {
            return fail(Fault::Type, "no items for cycling given");
        }
        Ok(items[self.at.get() % items.len()].clone())
    }

    pub fn changed(&self, values: Vec<Value>) -> Result<bool> {
        let values = Value::tuple(values);
        let mut last = self.changed.borrow_mut();
        let same = match &*last {
            Some(before) => crate::operators::equal(&Value::tuple(before.clone()), &values)?,
            None => false,
        };
        *last = Some(values.items()?);
        Ok(!same)
    }
}

enum Flow {
    Next,
    Break,
    Continue,
}

pub struct Run<'a> {
    pub environment: &'a Environment,
    pub(crate) program: &'a Program,
    context: &'a HashMap<Arc<str>, Value>,
    root: Rc<Scope>,
    pub(crate) scope: Rc<Scope>,
    /// The text, and within captures theirs.
    out: Vec<String>,
    generated: Vec<(usize, usize)>,
    generated_elsewhere: bool,
    steps: u64,
    calls: usize,
    /// Depth of recursive loops.
    depth: usize,
}

pub fn render(environment: &Environment, program: &Program, context: &HashMap<Arc<str>, Value>) -> Result<Rendered> {
    work::begin(environment.goes_on);
    let _rendering = cycles::Rendering; // before all that it empties
    let root = Scope::new(None);
    let mut run = Run {
        environment,
        program,
        context,
        scope: Rc::clone(&root),
        root,
        out: vec![String::new()],
        generated: Vec::new(),
        generated_elsewhere: false,
        steps: environment.most_steps,
        calls: 0,
        depth: 0,
    };
    run.body(&program.body)?;
    let text = run.out.pop().unwrap_or_default();
    Ok(Rendered { text, generated: run.generated, generated_elsewhere: run.generated_elsewhere })
}

impl Run<'_> {
    pub(crate) fn step(&mut self) -> Result<()> {
        if self.steps == 0 {
            return fail(Fault::Limit, "the template runs too long");
        }
        self.steps -= 1;
        Ok(())
    }

    /// Before what takes time that grows with its operands.
    pub(crate) fn check(&self) -> Result<()> {
        work::check()
    }

    pub(crate) fn lookup(&self, name: Name) -> Result<Value> {
        if let Some(value) = self.scope.get(name) {
            return Ok(value);
        }
        let name = &self.program.names[name as usize];
        if let Some(value) = self.context.get(name) {
            return Ok(value.clone());
        }
        if **name == *"self" || **name == *"lipsum" {
            return unsupported(format!("'{name}'"));
        }
        Ok(crate::calls::global(name).map_or_else(|| Value::missing(name), Value::Function))
    }

    fn emit(&mut self, text: &str) {
        if let Some(out) = self.out.last_mut() {
            out.push_str(text);
        }
    }

    /// Runs with a scope of its own within `parent`.
    fn within<T>(&mut self, parent: &Rc<Scope>, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outer = std::mem::replace(&mut self.scope, Scope::new(Some(parent)));
        let out = run(self);
        self.scope = outer;
        out
    }

    fn inner<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let parent = Rc::clone(&self.scope);
        self.within(&parent, run)
    }

    fn captured(&mut self, run: impl FnOnce(&mut Self) -> Result<()>) -> Result<String> {
        self.out.push(String::new());
        let done = run(self);
        let text = self.out.pop().unwrap_or_default();
        done.map(|()| text)
    }

    fn body(&mut self, body: &Body) -> Result<Flow> {
        for statement in body {
            match self.statement(statement).map_err(|error| error.at(statement.line))? {
                Flow::Next => {}
                other => return Ok(other),
            }
        }
        Ok(Flow::Next)
    }

    fn whole(&mut self, body: &Body) -> Result<()> {
        self.body(body).map(|_| ())
    }

    fn statement(&mut self, statement: &Statement) -> Result<Flow> {
        self.step()?;
        match &statement.kind {
            Kind::Text(text) => self.emit(text),
            Kind::Print(values) => {
                for value in values {
                    let value = self.value(value)?;
                    self.check()?;
                    match self.out.last_mut() {
                        Some(out) => value.print(out)?,
                        None => {}
                    }
                }
            }
            Kind::If(cases, otherwise) => {
                for (condition, body) in cases {
                    if self.value(condition)?.is_true() {
                        return self.body(body);
                    }
                }
                return self.body(otherwise);
            }
            Kind::For(code) => {
                let list = self.value(&code.list)?;
                let scope = Rc::clone(&self.scope);
                self.run_loop(code, &list, &scope)?;
            }
            Kind::Set(target, value) => {
                let value = self.value(value)?;
                self.assign(target, value)?;
            }
            Kind::SetBody(target, filter, body) => {
                let mut text = self.captured_inner(body)?;
                if let Some(filter) = filter {
                    text = self.filtered(filter, text)?;
                }
                self.assign(target, text)?;
            }
            Kind::FilterBody(filter, body) => {
                let text = self.captured_inner(body)?;
                let text = self.filtered(filter, text)?.text()?;
                self.emit(&text);
            }
            Kind::With(values, body) => self.with(values, body)?,
            Kind::Macro(code) => {
                let value = self.new_macro(code);
                // The parser numbers every name that it reads.
                if let Some(name) = self.program.names.iter().position(|name| *name == code.name) {
                    self.scope.set(name as Name, value);
                }
            }
            Kind::CallBody(call, code) => {
                let caller = self.new_macro(code);
                let text = self.call(call, Some(caller))?.text()?;
                self.emit(&text);
            }
            Kind::Block(body) => {
                let root = Rc::clone(&self.root);
                self.within(&root, |own| own.whole(body))?;
            }
            Kind::Generation(body) => {
                let begin = self.out.last().map_or(0, String::len);
                self.inner(|own| own.whole(body))?;
                self.mark(begin);
            }
            Kind::Break => return Ok(Flow::Break),
            Kind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn mark(&mut self, begin: usize) {
        match &self.out[..] {
            [out] => {
                let end = out.len();
                self.generated.retain(|&(inner, _)| inner < begin);
                if end > begin {
                    self.generated.push((begin, end));
                }
            }
            _ => self.generated_elsewhere = true,
        }
    }

    fn captured_inner(&mut self, body: &Body) -> Result<Value> {
        self.inner(|own| own.captured(|own| own.whole(body))).map(Value::str)
    }

    /// The filters of a block, of its text.
    fn filtered(&mut self, filter: &Expr, text: Value) -> Result<Value> {
        match filter {
            Expr::Filter(value, name, arguments) => {
                let value = match value {
                    Some(inner) => self.filtered(inner, text)?,
                    None => text,
                };
                let args = self.arguments(arguments)?;
                self.filter(name, value, args)
            }
            other => self.value(other),
        }
    }

    fn with(&mut self, values: &[(Target, Expr)], body: &Body) -> Result<()> {
        let mut all = Vec::new();
        for (target, value) in values {
            all.push((target, self.value(value)?));
        }
        self.inner(|own| {
            for (target, value) in all {
                own.assign(target, value)?;
            }
            own.whole(body)
        })
    }

    fn new_macro(&self, code: &Arc<MacroCode>) -> Value {
        cycles::keep_scope(&self.scope);
        Value::Macro(Rc::new(Macro { code: Arc::clone(code), scope: Rc::clone(&self.scope) }))
    }

    fn assign(&mut self, target: &Target, value: Value) -> Result<()> {
        match target {
            Target::Name(name) => self.scope.set(*name, value),
            Target::Attribute(name, member) => match self.lookup(*name)? {
                Value::Namespace(dict) => {
                    dict.borrow_mut().set(Value::Str(Arc::clone(member)), value)?;
                }
                _ => return fail(Fault::Type, "cannot assign attribute on non-namespace object"),
            },
            Target::Tuple(targets) => {
                if let Value::Undefined(what) = &value {
                    if !targets.is_empty() {
                        return fail(Fault::Value, format!("not enough values to unpack: {what}"));
                    }
                }
                let values = value.items().map_err(|_| {
                    crate::error::Error::new(
                        Fault::Type,
                        format!("cannot unpack non-iterable {} object", value.type_name()),
                    )
                })?;
                if values.len() != targets.len() {
                    let few = if values.len() < targets.len() { "not enough" } else { "too many" };
                    return fail(Fault::Value, format!("{few} values to unpack (expected {})", targets.len()));
                }
                for (target, value) in targets.iter().zip(values) {
                    self.assign(target, value)?;
                }
            }
        }
        Ok(())
    }

    fn fits(&mut self, code: &For, item: &Value, scope: &Rc<Scope>) -> Result<bool> {
        let Some(test) = &code.test else { return Ok(true) };
        self.within(scope, |own| {
            own.assign(&code.target, item.clone())?;
            Ok(own.value(test)?.is_true())
        })
    }

    fn run_loop(&mut self, code: &Arc<For>, list: &Value, scope: &Rc<Scope>) -> Result<()> {
        self.check()?;
        let mut items: VecDeque<Value> = list.items()?.into();
        // Without `loop` the number of items is not asked for, and each is tested when its turn comes.
        let test_late = code.test.is_some() && !code.uses_loop && !code.recursive;
        if code.test.is_some() && !test_late {
            let mut kept = VecDeque::new();
            for item in items {
                if self.fits(code, &item, scope)? {
                    kept.push_back(item);
                }
            }
            items = kept;
        }
        let mut ran = false;
        let state = Rc::new(LoopState {
            length: items.len(),
            items: RefCell::new(items),
            at: std::cell::Cell::new(0),
            depth: self.depth,
            before: RefCell::default(),
            current: RefCell::new(Value::None),
            changed: RefCell::default(),
            code: Arc::clone(code),
            scope: Rc::clone(scope),
        });
        cycles::keep_loop(&state);
        let loop_name = if code.uses_loop || code.recursive {
            self.program.names.iter().position(|name| **name == *"loop")
        } else {
            None
        };
        loop {
            let Some(item) = state.items.borrow_mut().pop_front() else { break };
            self.step()?;
            if test_late && !self.fits(code, &item, scope)? {
                continue;
            }
            if ran {
                state.at.set(state.at.get() + 1);
                *state.before.borrow_mut() = Some(state.current.borrow().clone());
            }
            *state.current.borrow_mut() = item.clone();
            ran = true;
            let flow = self.within(scope, |own| {
                if let Some(name) = loop_name {
                    own.scope.set(name as Name, Value::Loop(Rc::clone(&state)));
                }
                own.assign(&code.target, item)?;
                own.body(&code.body)
            })?;
            if matches!(flow, Flow::Break) {
                break;
            }
        }
        if !ran {
            self.within(scope, |own| own.whole(&code.otherwise))?;
        }
        Ok(())
    }

    fn deeper<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.calls += 1;
        if self.calls > MOST_CALLS {
            return fail(Fault::Limit, format!("more than {MOST_CALLS} calls of macros within each other"));
        }
        let out = run(self);
        self.calls -= 1;
        out
    }

    /// loop(list), in a recursive loop.
    pub(crate) fn call_loop(&mut self, state: &LoopState, list: &Value) -> Result<Value> {
        if !state.code.recursive {
            return fail(Fault::Type, "The loop must have the 'recursive' marker to be called recursively.");
        }
        let outer = std::mem::replace(&mut self.depth, state.depth + 1);
        let text = self.deeper(|own| own.captured(|own| own.run_loop(&state.code, list, &state.scope)));
        self.depth = outer;
        text.map(Value::str)
    }

    pub(crate) fn call_macro(&mut self, called: &Macro, args: Args, caller: Option<Value>) -> Result<Value> {
        let code = Arc::clone(&called.code);
        let mut named = args.named;
        let mut list = args.list.into_iter();
        let caller = match caller {
            Some(caller) => Some(caller),
            None => named.iter().position(|(name, _)| **name == *"caller").map(|at| named.remove(at).1),
        };
        self.deeper(|own| {
            own.within(&called.scope, |own| {
                let first_default = code.parameters.len() - code.defaults.len();
                for (at, (&number, name)) in code.parameters.iter().zip(&code.names).enumerate() {
                    let given = named.iter().position(|(other, _)| other == name);
                    let value = match (list.next(), given) {
                        (Some(_), Some(_)) => {
                            let what = format!("macro '{}' got multiple values for argument '{name}'", code.name);
                            return fail(Fault::Type, what);
                        }
                        (Some(value), None) => value,
                        (None, Some(given)) => named.remove(given).1,
                        (None, None) if at >= first_default => own.value(&code.defaults[at - first_default])?,
                        (None, None) => Value::Undefined(format!("parameter '{name}' was not provided").into()),
                    };
                    own.scope.set(number, value);
                }
                own.set_special(&code, list.collect(), named, caller)?;
                own.captured(|own| own.whole(&code.body)).map(Value::str)
            })
        })
    }

    /// `varargs`, `kwargs` and `caller` of a macro that names them.
    fn set_special(
        &mut self,
        code: &MacroCode,
        rest: Vec<Value>,
        named: Vec<(Arc<str>, Value)>,
        caller: Option<Value>,
    ) -> Result<()> {
        let number = |name: &str| self.program.names.iter().position(|own| **own == *name).map(|at| at as Name);
        if code.uses_caller {
            if let Some(name) = number("caller") {
                self.scope.set(name, caller.unwrap_or_else(|| Value::Undefined("No caller defined".into())));
            }
        } else if caller.is_some() {
            let what = format!(
                "macro '{}' was invoked with two values for the special caller argument, or takes none",
                code.name
            );
            return fail(Fault::Type, what);
        }
        if code.uses_varargs {
            if let Some(name) = number("varargs") {
                self.scope.set(name, Value::tuple(rest));
            }
        } else if !rest.is_empty() {
            let what = format!("macro '{}' takes not more than {} argument(s)", code.name, code.parameters.len());
            return fail(Fault::Type, what);
        }
        if code.uses_kwargs {
            let mut dict = Dict::default();
            for (name, value) in named {
                dict.set(Value::Str(name), value)?;
            }
            if let Some(name) = number("kwargs") {
                self.scope.set(name, Value::dict(dict));
            }
        } else if let Some((name, _)) = named.first() {
            return fail(Fault::Type, format!("macro '{}' takes no keyword argument '{name}'", code.name));
        }
        Ok(())
    }
}
