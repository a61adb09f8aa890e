//! The values of a template: Python's, as far as one can meet them there. Lists and dicts do not change, as in jinja2's
//! immutable sandbox; only namespaces, iterators, cyclers and joiners do.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use crate::error::{fail, Kind, Result};
use crate::run::{LoopState, Macro};

/// Values within values that `repr`, comparisons and JSON go down into.
pub const MOST_LEVELS: usize = 500;

#[derive(Clone)]
pub enum Value {
    /// With what is missing.
    Undefined(Arc<str>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    /// A text that `escape` or `safe` made.
    Markup(Arc<str>),
    List(Rc<Vec<Value>>),
    Tuple(Rc<Tuple>),
    Dict(Rc<Dict>),
    View(Rc<Dict>, View),
    Range(i128, i128, i128),
    /// A generator: what is left of it.
    Iter(Rc<RefCell<VecDeque<Value>>>),
    Namespace(Rc<RefCell<Dict>>),
    Loop(Rc<LoopState>),
    Macro(Rc<Macro>),
    Method(Rc<(Value, Arc<str>)>),
    Function(Function),
    Cycler(Rc<Cycler>),
    Joiner(Rc<Joiner>),
}

pub struct Tuple {
    pub items: Vec<Value>,
    /// Made by `groupby`: its parts have the names "grouper" and "list".
    pub group: bool,
}

impl Deref for Tuple {
    type Target = Vec<Value>;
    fn deref(&self) -> &Vec<Value> {
        &self.items
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum View {
    Keys,
    Values,
    Items,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Function {
    Range,
    Dict,
    Namespace,
    Cycler,
    Joiner,
    RaiseException,
    StrftimeNow,
}

pub struct Cycler {
    pub items: Vec<Value>,
    pub at: Cell<usize>,
}

pub struct Joiner {
    pub separator: Arc<str>,
    pub used: Cell<bool>,
}

/// What a dict finds its values by: equal for values that are equal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Key {
    None,
    Undefined,
    Int(i128),
    Float(u64),
    Str(Arc<str>),
    Tuple(Vec<Key>),
    Object(usize),
}

#[derive(Clone, Default)]
pub struct Dict {
    entries: Vec<(Value, Value)>,
    index: HashMap<Key, usize>,
}

impl Dict {
    /// A key that is there keeps its place.
    pub fn set(&mut self, key: Value, value: Value) -> Result<()> {
        let hashed = key_of(&key)?;
        if let Some(&at) = self.index.get(&hashed) {
            self.entries[at].1 = value;
        } else {
            self.index.insert(hashed, self.entries.len());
            self.entries.push((key, value));
        }
        Ok(())
    }

    pub fn get(&self, key: &Value) -> Result<Option<&Value>> {
        Ok(self.index.get(&key_of(key)?).map(|&at| &self.entries[at].1))
    }

    pub fn text(&self, key: &str) -> Option<&Value> {
        self.index.get(&Key::Str(key.into())).map(|&at| &self.entries[at].1)
    }

    pub fn entries(&self) -> &[(Value, Value)] {
        &self.entries
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn view(&self, view: View) -> Vec<Value> {
        let one = |(key, value): &(Value, Value)| match view {
            View::Keys => key.clone(),
            View::Values => value.clone(),
            View::Items => Value::tuple(vec![key.clone(), value.clone()]),
        };
        self.entries.iter().map(one).collect()
    }
}

pub fn key_of(value: &Value) -> Result<Key> {
    Ok(match value {
        Value::None => Key::None,
        Value::Undefined(_) => Key::Undefined,
        Value::Bool(value) => Key::Int(i128::from(*value)),
        Value::Int(value) => Key::Int(*value),
        Value::Float(value) if value.fract() == 0.0 && value.abs() < 1e38 => Key::Int(*value as i128),
        Value::Float(value) => Key::Float(value.to_bits()),
        Value::Str(text) | Value::Markup(text) => Key::Str(Arc::clone(text)),
        Value::Tuple(items) => Key::Tuple(items.iter().map(key_of).collect::<Result<_>>()?),
        Value::Range(a, b, c) => Key::Tuple(vec![Key::Int(*a), Key::Int(*b), Key::Int(*c)]),
        Value::Namespace(value) => Key::Object(Rc::as_ptr(value) as usize),
        Value::Macro(value) => Key::Object(Rc::as_ptr(value) as usize),
        Value::Iter(value) => Key::Object(Rc::as_ptr(value) as usize),
        other => return fail(Kind::Type, format!("unhashable type: '{}'", other.type_name())),
    })
}

impl Value {
    pub fn str(text: impl Into<Arc<str>>) -> Self {
        Self::Str(text.into())
    }

    pub fn list(items: Vec<Value>) -> Self {
        Self::List(Rc::new(items))
    }

    pub fn tuple(items: Vec<Value>) -> Self {
        Self::Tuple(Rc::new(Tuple { items, group: false }))
    }

    pub fn dict(dict: Dict) -> Self {
        Self::Dict(Rc::new(dict))
    }

    pub fn generator(items: impl IntoIterator<Item = Value>) -> Self {
        Self::Iter(Rc::new(RefCell::new(items.into_iter().collect())))
    }

    pub fn texts<'a>(items: impl IntoIterator<Item = &'a str>) -> Self {
        Self::list(items.into_iter().map(Value::str).collect())
    }

    /// "'name' is undefined"
    pub fn missing(name: &str) -> Self {
        Self::Undefined(format!("'{name}' is undefined").into())
    }

    pub fn as_str(&self) -> Option<&Arc<str>> {
        match self {
            Self::Str(text) | Self::Markup(text) => Some(text),
            _ => None,
        }
    }

    /// A bool is a number.
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Self::Bool(value) => Some(i128::from(*value)),
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            other => other.as_int().map(|value| value as f64),
        }
    }

    pub fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined(_))
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Python's name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined(_) => "Undefined",
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::Markup(_) => "Markup",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Dict(_) => "dict",
            Self::View(_, View::Keys) => "dict_keys",
            Self::View(_, View::Values) => "dict_values",
            Self::View(_, View::Items) => "dict_items",
            Self::Range(..) => "range",
            Self::Iter(_) => "generator",
            Self::Namespace(_) => "Namespace",
            Self::Loop(_) => "LoopContext",
            Self::Macro(_) => "Macro",
            Self::Method(_) => "builtin_function_or_method",
            Self::Function(_) => "function",
            Self::Cycler(_) => "Cycler",
            Self::Joiner(_) => "Joiner",
        }
    }

    pub fn is_true(&self) -> bool {
        match self {
            Self::Undefined(_) | Self::None => false,
            Self::Bool(value) => *value,
            Self::Int(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Str(text) | Self::Markup(text) => !text.is_empty(),
            Self::List(items) => !items.is_empty(),
            Self::Tuple(items) => !items.is_empty(),
            Self::Dict(dict) | Self::View(dict, _) => !dict.is_empty(),
            Self::Range(..) => self.len().unwrap_or(0) > 0,
            _ => true,
        }
    }

    /// Python's `len`; none if the type has none.
    pub fn len(&self) -> Option<usize> {
        Some(match self {
            Self::Undefined(_) => 0,
            Self::Str(text) | Self::Markup(text) => count_chars(text),
            Self::List(items) => items.len(),
            Self::Tuple(items) => items.len(),
            Self::Dict(dict) | Self::View(dict, _) => dict.len(),
            Self::Range(start, stop, step) => range_length(*start, *stop, *step),
            Self::Loop(state) => state.length(),
            _ => return None,
        })
    }

    pub fn is_callable(&self) -> bool {
        matches!(
            self,
            Self::Macro(_)
                | Self::Method(_)
                | Self::Function(_)
                | Self::Joiner(_)
                | Self::Loop(_)
                | Self::Undefined(_)
        )
    }

    /// All items; what is left of a generator, which then is empty.
    pub fn items(&self) -> Result<Vec<Value>> {
        Ok(match self {
            Self::Undefined(_) => Vec::new(),
            Self::Str(text) | Self::Markup(text) => text.chars().map(char_value).collect(),
            Self::List(items) => items.to_vec(),
            Self::Tuple(items) => items.to_vec(),
            Self::Dict(dict) => dict.view(View::Keys),
            Self::View(dict, view) => dict.view(*view),
            Self::Range(start, _, step) => {
                (0..self.len().unwrap_or(0)).map(|at| Value::Int(start + step * at as i128)).collect()
            }
            Self::Iter(rest) => rest.borrow_mut().drain(..).collect(),
            other => return fail(Kind::Type, format!("'{}' object is not iterable", other.type_name())),
        })
    }

    pub fn is_iterable(&self) -> bool {
        use Value::{Dict, Iter, List, Loop, Markup, Range, Str, Tuple, Undefined, View};
        matches!(
            self,
            Undefined(_)
                | Str(_)
                | Markup(_)
                | List(_)
                | Tuple(_)
                | Dict(_)
                | View(..)
                | Range(..)
                | Iter(_)
                | Loop(_)
        )
    }

    /// Has a length, and items by number or key.
    pub fn is_sequence(&self) -> bool {
        use Value::{Dict, List, Markup, Range, Str, Tuple, Undefined};
        matches!(self, Undefined(_) | Str(_) | Markup(_) | List(_) | Tuple(_) | Dict(_) | Range(..))
    }
}

pub fn char_value(character: char) -> Value {
    Value::str(&*character.encode_utf8(&mut [0; 4]))
}

pub fn count_chars(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.chars().count()
    }
}

pub fn range_length(start: i128, stop: i128, step: i128) -> usize {
    let span = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
    if span <= 0 {
        return 0;
    }
    let step = step.unsigned_abs();
    let count = (span as u128 - 1) / step + 1;
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Arguments of a call.
#[derive(Default)]
pub struct Args {
    pub list: Vec<Value>,
    pub named: Vec<(Arc<str>, Value)>,
}

impl Args {
    pub fn of(list: Vec<Value>) -> Self {
        Self { list, named: Vec::new() }
    }

    /// The arguments by the names of `what`'s parameters, of which the first `required` have to be there. A name that
    /// is empty can only be given by place.
    pub fn bind<const N: usize>(self, what: &str, names: [&str; N], required: usize) -> Result<[Option<Value>; N]> {
        let mut out = [const { None }; N];
        if self.list.len() > N {
            return fail(Kind::Type, format!("{what}() takes at most {N} arguments ({} given)", self.list.len()));
        }
        for (place, value) in out.iter_mut().zip(self.list) {
            *place = Some(value);
        }
        for (name, value) in self.named {
            let Some(at) = names.iter().position(|own| !own.is_empty() && **own == *name) else {
                return fail(Kind::Type, format!("{what}() got an unexpected keyword argument '{name}'"));
            };
            if out[at].is_some() {
                return fail(Kind::Type, format!("{what}() got multiple values for argument '{name}'"));
            }
            out[at] = Some(value);
        }
        if let Some(at) = out[..required].iter().position(Option::is_none) {
            return fail(Kind::Type, format!("{what}() is missing its argument {} {}", at + 1, names[at]));
        }
        Ok(out)
    }

    pub fn none(self, what: &str) -> Result<()> {
        self.bind::<0>(what, [], 0).map(|_| ())
    }
}
