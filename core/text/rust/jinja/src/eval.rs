//! Values of expressions.

use std::rc::Rc;
use std::sync::Arc;

use crate::calls;
use crate::error::{fail, unsupported, Kind as Fault, Result};
use crate::methods;
use crate::operators;
use crate::run::Run;
use crate::syntax::{Arguments, Compare, Constant, Expr};
use crate::value::{char_value, Args, Dict, Value};

impl Run<'_> {
    pub(crate) fn value(&mut self, expression: &Expr) -> Result<Value> {
        self.step()?;
        Ok(match expression {
            Expr::Constant(constant) => match constant {
                Constant::None => Value::None,
                Constant::Bool(value) => Value::Bool(*value),
                Constant::Int(value) => Value::Int(*value),
                Constant::Float(value) => Value::Float(*value),
                Constant::Str(text) => Value::Str(Arc::clone(text)),
            },
            Expr::Name(name) => self.lookup(*name)?,
            Expr::List(items) => Value::list(self.values(items)?),
            Expr::Tuple(items) => Value::tuple(self.values(items)?),
            Expr::Dict(entries) => {
                let mut dict = Dict::default();
                for (key, value) in entries {
                    let key = self.value(key)?;
                    dict.set(key, self.value(value)?)?;
                }
                Value::dict(dict)
            }
            Expr::Signs(signs, value) => {
                let mut value = self.value(value)?;
                for sign in signs.iter().rev() {
                    value = operators::sign(*sign, &value)?;
                }
                value
            }
            Expr::Not(value) => Value::Bool(!self.value(value)?.is_true()),
            Expr::Binary(first, rest) => {
                let mut value = self.value(first)?;
                for (operator, right) in rest {
                    let right = self.value(right)?;
                    self.check()?;
                    value = operators::binary(*operator, &value, &right)?;
                }
                value
            }
            Expr::Concat(parts) => {
                let mut out = String::new();
                for part in parts {
                    let part = self.value(part)?;
                    self.check()?;
                    part.print(&mut out)?;
                }
                Value::str(out)
            }
            Expr::Compare(first, rest) => Value::Bool(self.comparison(first, rest)?),
            Expr::And(parts) => self.until(parts, false)?,
            Expr::Or(parts) => self.until(parts, true)?,
            Expr::Conditional(parts) => match &**parts {
                (condition, value, _) if self.value(condition)?.is_true() => self.value(value)?,
                (_, _, Some(otherwise)) => self.value(otherwise)?,
                _ => Value::Undefined(
                    "the inline if-expression evaluated to false and no else section was defined".into(),
                ),
            },
            Expr::Attribute(value, name) => {
                let value = self.value(value)?;
                attribute(&value, name)?
            }
            Expr::Item(value, index) => {
                let (value, index) = (self.value(value)?, self.value(index)?);
                self.check()?;
                item(&value, &index)?
            }
            Expr::Slice(sliced, parts) => {
                let value = self.value(sliced)?;
                let mut bounds = [None, None, None];
                for (bound, part) in bounds.iter_mut().zip(parts.iter()) {
                    if let Some(part) = part {
                        *bound = Some(self.value(part)?);
                    }
                }
                self.check()?;
                match operators::slice(&value, bounds) {
                    // jinja2 computes these while it compiles, by other rules.
                    Err(error) if error.kind == Fault::Type && matches!(**sliced, Expr::Constant(_)) => {
                        Value::Undefined("a constant without items".into())
                    }
                    other => other?,
                }
            }
            Expr::Call(..) => self.call(expression, None)?,
            Expr::Filter(value, name, arguments) => {
                let value = match value {
                    Some(value) => self.value(value)?,
                    None => return fail(Fault::Syntax, "a filter without a value"),
                };
                let args = self.arguments(arguments)?;
                self.filter(name, value, args)?
            }
            Expr::Test(value, name, arguments) => {
                let value = self.value(value)?;
                let args = self.arguments(arguments)?;
                Value::Bool(self.test(name, &value, args)?)
            }
        })
    }

    fn values(&mut self, items: &[Expr]) -> Result<Vec<Value>> {
        items.iter().map(|item| self.value(item)).collect()
    }

    /// The first part that is true (or not), or the last.
    fn until(&mut self, parts: &[Expr], truth: bool) -> Result<Value> {
        let mut value = Value::None;
        for part in parts {
            value = self.value(part)?;
            if value.is_true() == truth {
                break;
            }
        }
        Ok(value)
    }

    fn comparison(&mut self, first: &Expr, rest: &[(Compare, Expr)]) -> Result<bool> {
        let mut left = self.value(first)?;
        for (operator, right) in rest {
            let right = self.value(right)?;
            self.check()?;
            if !operators::compare(*operator, &left, &right)? {
                return Ok(false);
            }
            left = right;
        }
        Ok(true)
    }

    pub(crate) fn arguments(&mut self, arguments: &Arguments) -> Result<Args> {
        let mut out = Args::of(self.values(&arguments.list)?);
        for (name, value) in &arguments.named {
            out.named.push((Arc::clone(name), self.value(value)?));
        }
        if let Some(more) = &arguments.more {
            out.list.extend(self.value(more)?.items()?);
        }
        if let Some(more) = &arguments.more_named {
            let Value::Dict(dict) = self.value(more)? else {
                return fail(Fault::Type, "argument after ** must be a mapping");
            };
            for (key, value) in dict.entries() {
                let Some(name) = key.as_str() else { return fail(Fault::Type, "keywords must be strings") };
                if out.named.iter().any(|(own, _)| own == name) {
                    return fail(Fault::Type, format!("got multiple values for keyword argument '{name}'"));
                }
                out.named.push((Arc::clone(name), value.clone()));
            }
        }
        Ok(out)
    }

    /// `caller`: of a call block.
    pub(crate) fn call(&mut self, expression: &Expr, caller: Option<Value>) -> Result<Value> {
        let Expr::Call(callee, arguments) = expression else { return self.value(expression) };
        let callee = self.value(callee)?;
        let args = self.arguments(arguments)?;
        self.check()?;
        match &callee {
            Value::Macro(code) => self.call_macro(code, args, caller),
            _ if caller.is_some() => fail(Fault::Type, "a call block needs a macro to call"),
            Value::Loop(state) => {
                let [list] = args.bind("loop", ["iterable"], 1)?;
                self.call_loop(state, &list.unwrap_or(Value::None))
            }
            Value::Method(method) => methods::call(&method.0, &method.1, args),
            Value::Function(function) => calls::call(self.environment, *function, args),
            Value::Joiner(joiner) => {
                args.none("joiner")?;
                Ok(Value::Str(if joiner.used.replace(true) { Arc::clone(&joiner.separator) } else { "".into() }))
            }
            Value::Undefined(what) => fail(Fault::Undefined, &**what),
            other => fail(Fault::Type, format!("'{}' object is not callable", other.type_name())),
        }
    }
}

fn method(value: &Value, name: &str) -> Option<Value> {
    methods::has(value, name).then(|| Value::Method(Rc::new((value.clone(), name.into()))))
}

/// What Python's getattr finds.
fn own_attribute(value: &Value, name: &str) -> Result<Option<Value>> {
    if name.starts_with("__") && !value.is_undefined() {
        return Ok(None);
    }
    if methods::changes(value, name) {
        let what = format!("access to attribute '{name}' of '{}' object is unsafe.", value.type_name());
        return Ok(Some(Value::Undefined(what.into())));
    }
    Ok(match value {
        Value::Undefined(what) => return fail(Fault::Undefined, &**what),
        Value::Namespace(dict) => dict.borrow().text(name).cloned(),
        Value::Loop(state) => state.attribute(name).or_else(|| method(value, name)),
        Value::Macro(code) => match name {
            "name" => Some(Value::Str(Arc::clone(&code.code.name))),
            "arguments" => {
                Some(Value::tuple(code.code.names.iter().map(|name| Value::Str(Arc::clone(name))).collect()))
            }
            "catch_kwargs" => Some(Value::Bool(code.code.uses_kwargs)),
            "catch_varargs" => Some(Value::Bool(code.code.uses_varargs)),
            "caller" => Some(Value::Bool(code.code.uses_caller)),
            _ => None,
        },
        Value::Tuple(items) if items.group && name == "grouper" => Some(items[0].clone()),
        Value::Tuple(items) if items.group && name == "list" => Some(items[1].clone()),
        Value::Range(start, stop, step) => match name {
            "start" => Some(Value::Int(*start)),
            "stop" => Some(Value::Int(*stop)),
            "step" => Some(Value::Int(*step)),
            _ => method(value, name),
        },
        Value::Cycler(cycler) if name == "current" => Some(cycler.items[cycler.at.get()].clone()),
        Value::Int(_) | Value::Bool(_) | Value::Float(_) => match name {
            "real" => Some(operators::sign('+', value)?),
            "imag" if matches!(value, Value::Float(_)) => Some(Value::Float(0.0)),
            "imag" => Some(Value::Int(0)),
            "numerator" if !matches!(value, Value::Float(_)) => Some(operators::sign('+', value)?),
            "denominator" if !matches!(value, Value::Float(_)) => Some(Value::Int(1)),
            _ => method(value, name),
        },
        _ => method(value, name),
    })
}

/// value.name: an attribute, or an item.
pub fn attribute(value: &Value, name: &str) -> Result<Value> {
    if let Some(found) = own_attribute(value, name)? {
        return Ok(found);
    }
    if let Value::Dict(dict) = value {
        if let Some(found) = dict.text(name) {
            return Ok(found.clone());
        }
    }
    Ok(no_attribute(value, name))
}

fn no_attribute(value: &Value, name: &str) -> Value {
    Value::Undefined(format!("'{} object' has no attribute '{name}'", value.type_name()).into())
}

/// value[index]: an item, or an attribute.
pub fn item(value: &Value, index: &Value) -> Result<Value> {
    if let Value::Undefined(what) = value {
        return fail(Fault::Undefined, &**what);
    }
    let place = |length: usize| {
        let at = index.as_int()?;
        let at = if at < 0 { at + length as i128 } else { at };
        usize::try_from(at).ok().filter(|&at| at < length)
    };
    let found = match value {
        Value::Dict(dict) => dict.get(index).ok().flatten().cloned(),
        Value::List(items) => place(items.len()).map(|at| items[at].clone()),
        Value::Tuple(items) => place(items.len()).map(|at| items[at].clone()),
        Value::Str(text) if text.is_ascii() => {
            place(text.len()).map(|at| char_value(char::from(text.as_bytes()[at])))
        }
        Value::Str(text) | Value::Markup(text) => {
            place(value.len().unwrap_or(0)).and_then(|at| text.chars().nth(at)).map(char_value)
        }
        Value::Range(start, _, step) => {
            place(value.len().unwrap_or(0)).map(|at| Value::Int(start + step * at as i128))
        }
        Value::Loop(_) | Value::Iter(_) => None,
        _ => None,
    };
    if let Some(found) = found {
        return Ok(found);
    }
    match index.as_str() {
        Some(name) => Ok(own_attribute(value, name)?.unwrap_or_else(|| no_attribute(value, name))),
        None if index.is_undefined() && matches!(value, Value::Namespace(_)) => unsupported("an undefined index"),
        None => Ok(Value::Undefined(
            format!("{} has no element {}", value.type_name(), index.repr().unwrap_or_default()).into(),
        )),
    }
}
