//! Filters of lists and dicts.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::rc::Rc;

use crate::error::{fail, Error, Kind, Result};
use crate::eval;
use crate::filters::{flag, number};
use crate::operators::{binary, order};
use crate::run::Run;
use crate::syntax::Binary;
use crate::value::{key_of, Args, Tuple, Value, View};

impl Run<'_> {
    pub(crate) fn filter_list(&mut self, name: &str, value: Value, args: Args) -> Result<Value> {
        match name {
            "first" => {
                args.none(name)?;
                let first = match &value {
                    Value::Iter(rest) => rest.borrow_mut().pop_front(),
                    other => other.items()?.into_iter().next(),
                };
                Ok(first.unwrap_or_else(|| Value::Undefined("No first item, sequence was empty.".into())))
            }
            "last" => {
                args.none(name)?;
                let last = reversible(&value)?.pop();
                Ok(last.unwrap_or_else(|| Value::Undefined("No last item, sequence was empty.".into())))
            }
            "reverse" => {
                args.none(name)?;
                match &value {
                    Value::Str(text) | Value::Markup(text) => Ok(Value::str(text.chars().rev().collect::<String>())),
                    Value::Iter(_) | Value::Undefined(_) => {
                        let mut items = value.items()?;
                        items.reverse();
                        Ok(Value::list(items))
                    }
                    _ => Ok(Value::generator(reversible(&value)?.into_iter().rev())),
                }
            }
            "list" => args.none(name).and_then(|()| Ok(Value::list(value.items()?))),
            "items" => {
                args.none(name)?;
                match &value {
                    Value::Undefined(_) => Ok(Value::generator([])),
                    Value::Dict(dict) => Ok(Value::generator(dict.view(View::Items))),
                    _ => fail(Kind::Type, "Can only get item pairs from a mapping."),
                }
            }
            "join" => join(&value, args),
            "sum" => sum(&value, args),
            "batch" | "slice" => parts(name, &value, args),
            "sort" => sort(&value, args),
            "dictsort" => sort_dict(&value, args),
            "unique" => unique(&value, args),
            "min" | "max" => extreme(name, &value, args),
            "groupby" => group(&value, args),
            "map" => self.map(&value, args),
            _ => self.choose(name, &value, args),
        }
    }

    fn map(&mut self, value: &Value, mut args: Args) -> Result<Value> {
        let mut out = Vec::new();
        if !value.is_true() {
            return Ok(Value::generator(out));
        }
        if args.list.is_empty() && args.named.iter().any(|(name, _)| **name == *"attribute") {
            let [attribute, otherwise] = args.bind("map", ["attribute", "default"], 1)?;
            let getter = Getter::new(attribute.as_ref(), otherwise)?;
            for item in value.items()? {
                out.push(getter.get(&item)?);
            }
            return Ok(Value::generator(out));
        }
        if args.list.is_empty() {
            return fail(Kind::Type, "map requires a filter argument");
        }
        let name = args.list.remove(0).text()?;
        for item in value.items()? {
            let args = Args { list: args.list.clone(), named: args.named.clone() };
            out.push(self.filter(&name, item, args)?);
        }
        Ok(Value::generator(out))
    }

    /// select, reject, selectattr and rejectattr.
    fn choose(&mut self, name: &str, value: &Value, mut args: Args) -> Result<Value> {
        let mut out = Vec::new();
        if !value.is_true() {
            return Ok(Value::generator(out));
        }
        let getter = if name.ends_with("attr") {
            if args.list.is_empty() {
                return fail(Kind::Type, "Missing parameter for attribute name");
            }
            let attribute = args.list.remove(0);
            Getter::new(Some(&attribute), None)?
        } else {
            Getter::default()
        };
        let wanted = name.starts_with("select");
        let test = if args.list.is_empty() { None } else { Some(args.list.remove(0).text()?) };
        for item in value.items()? {
            let tested = getter.get(&item)?;
            let fits = match &test {
                Some(test) => {
                    let args = Args { list: args.list.clone(), named: args.named.clone() };
                    self.test(test, &tested, args)?
                }
                None => tested.is_true(),
            };
            if fits == wanted {
                out.push(item);
            }
        }
        Ok(Value::generator(out))
    }
}

fn reversible(value: &Value) -> Result<Vec<Value>> {
    match value {
        Value::Iter(_) => fail(Kind::Type, "'generator' object is not reversible"),
        Value::Loop(_) => fail(Kind::Type, "'LoopContext' object is not reversible"),
        other => other.items(),
    }
}

/// An item's attribute by its path: names and numbers, with dots between.
#[derive(Default)]
struct Getter {
    path: Vec<Value>,
    otherwise: Option<Value>,
    ignore_case: bool,
}

impl Getter {
    fn new(attribute: Option<&Value>, otherwise: Option<Value>) -> Result<Self> {
        let part = |part: &str| {
            let digits = !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
            part.parse().ok().filter(|_| digits).map_or_else(|| Value::str(part), Value::Int)
        };
        let path = match attribute {
            None | Some(Value::None) => Vec::new(),
            Some(Value::Str(path)) => path.split('.').map(part).collect(),
            Some(Value::Int(number)) => vec![Value::Int(*number)],
            Some(other) => {
                return fail(Kind::Type, format!("an attribute's name is a text, not {}", other.type_name()))
            }
        };
        Ok(Self { path, otherwise, ignore_case: false })
    }

    fn get(&self, item: &Value) -> Result<Value> {
        let mut value = item.clone();
        for part in &self.path {
            value = eval::item(&value, part)?;
            if let (true, Some(otherwise)) = (value.is_undefined(), &self.otherwise) {
                value = otherwise.clone();
            }
        }
        Ok(match value {
            Value::Str(text) if self.ignore_case => Value::str(text.to_lowercase()),
            value => value,
        })
    }
}

fn join(value: &Value, args: Args) -> Result<Value> {
    let [separator, attribute] = args.bind("join", ["d", "attribute"], 0)?;
    let separator = separator.map_or_else(|| Ok(String::new()), |separator| separator.text())?;
    let getter = Getter::new(attribute.as_ref(), None)?;
    let mut out = String::new();
    for (at, item) in value.items()?.iter().enumerate() {
        if at > 0 {
            out.push_str(&separator);
        }
        getter.get(item)?.print(&mut out)?;
    }
    Ok(Value::str(out))
}

fn sum(value: &Value, args: Args) -> Result<Value> {
    let [attribute, start] = args.bind("sum", ["attribute", "start"], 0)?;
    let getter = Getter::new(attribute.as_ref(), None)?;
    let mut total = start.unwrap_or(Value::Int(0));
    if total.as_str().is_some() {
        return fail(Kind::Type, "sum() can't sum strings [use ''.join(seq) instead]");
    }
    for item in value.items()? {
        total = binary(Binary::Add, &total, &getter.get(&item)?)?;
    }
    Ok(total)
}

fn parts(name: &str, value: &Value, args: Args) -> Result<Value> {
    let [count, fill] = args.bind(name, [if name == "batch" { "linecount" } else { "slices" }, "fill_with"], 1)?;
    let count = number(count, 1)?;
    let fill = fill.filter(|fill| !fill.is_none());
    let items = value.items()?;
    let Ok(count) = usize::try_from(count) else { return Ok(Value::generator([])) };
    let mut out: Vec<Value> = Vec::new();
    if name == "batch" {
        let mut part = Vec::new();
        for item in items {
            if part.len() == count {
                out.push(Value::list(std::mem::take(&mut part)));
            }
            part.push(item);
        }
        if let Some(fill) = fill.filter(|_| !part.is_empty()) {
            if part.len() < count {
                part.resize(count.min(part.len() + (1 << 20)), fill);
            }
        }
        if !part.is_empty() {
            out.push(Value::list(part));
        }
        return Ok(Value::generator(out));
    }
    if count == 0 {
        return fail(Kind::ZeroDivision, "integer division or modulo by zero");
    }
    if count > 100_000 {
        return fail(Kind::Limit, "more than 100000 slices");
    }
    let (each, longer) = (items.len() / count, items.len() % count);
    let mut begin = 0;
    for at in 0..count {
        let end = begin + each + usize::from(at < longer);
        let mut part = items[begin..end].to_vec();
        if at >= longer {
            part.extend(fill.clone());
        }
        out.push(Value::list(part));
        begin = end;
    }
    Ok(Value::generator(out))
}

/// Sorts by keys; those that have no order are an error.
fn sort_by_keys(keyed: &mut [(Vec<Value>, Value)], reverse: bool) -> Result<()> {
    let mut wrong: Option<Error> = None;
    keyed.sort_by(|left, right| {
        for (left, right) in left.0.iter().zip(&right.0) {
            match order("<", left, right, 0) {
                Ok(Some(Ordering::Equal) | None) => {}
                Ok(Some(order)) => return if reverse { order.reverse() } else { order },
                Err(error) => {
                    wrong.get_or_insert(error);
                }
            }
        }
        Ordering::Equal
    });
    wrong.map_or(Ok(()), Err)
}

fn sort(value: &Value, args: Args) -> Result<Value> {
    let names = ["reverse", "case_sensitive", "attribute"];
    let [reverse, case_sensitive, attribute] = args.bind("sort", names, 0)?;
    let ignore_case = !flag(case_sensitive);
    let getters = match &attribute {
        Some(Value::Str(all)) => all
            .split(',')
            .map(|one| Ok(Getter { ignore_case, ..Getter::new(Some(&Value::str(one)), None)? }))
            .collect::<Result<Vec<_>>>()?,
        other => vec![Getter { ignore_case, ..Getter::new(other.as_ref(), None)? }],
    };
    let mut keyed = Vec::new();
    for item in value.items()? {
        let keys = getters.iter().map(|getter| getter.get(&item)).collect::<Result<_>>()?;
        keyed.push((keys, item));
    }
    sort_by_keys(&mut keyed, flag(reverse))?;
    Ok(Value::list(keyed.into_iter().map(|(_, item)| item).collect()))
}

fn sort_dict(value: &Value, args: Args) -> Result<Value> {
    let [case_sensitive, by, reverse] = args.bind("dictsort", ["case_sensitive", "by", "reverse"], 0)?;
    let by = by.map_or_else(|| Ok("key".to_string()), |by| by.text())?;
    let place = match by.as_str() {
        "key" => 0,
        "value" => 1,
        _ => return fail(Kind::Type, "You can only sort by either \"key\" or \"value\""),
    };
    let Value::Dict(dict) = value else {
        return fail(Kind::Type, format!("'{}' object has no attribute 'items'", value.type_name()));
    };
    let getter = Getter { ignore_case: !flag(case_sensitive), ..Getter::default() };
    let mut keyed = Vec::new();
    for (key, value) in dict.entries() {
        let by = getter.get(if place == 0 { key } else { value })?;
        keyed.push((vec![by], Value::tuple(vec![key.clone(), value.clone()])));
    }
    sort_by_keys(&mut keyed, flag(reverse))?;
    Ok(Value::list(keyed.into_iter().map(|(_, item)| item).collect()))
}

fn unique(value: &Value, args: Args) -> Result<Value> {
    let [case_sensitive, attribute] = args.bind("unique", ["case_sensitive", "attribute"], 0)?;
    let getter = Getter { ignore_case: !flag(case_sensitive), ..Getter::new(attribute.as_ref(), None)? };
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    for item in value.items()? {
        if seen.insert(key_of(&getter.get(&item)?)?) {
            out.push(item);
        }
    }
    Ok(Value::generator(out))
}

fn extreme(name: &str, value: &Value, args: Args) -> Result<Value> {
    let [case_sensitive, attribute] = args.bind(name, ["case_sensitive", "attribute"], 0)?;
    let getter = Getter { ignore_case: !flag(case_sensitive), ..Getter::new(attribute.as_ref(), None)? };
    let (symbol, better) = if name == "min" { ("<", Ordering::Less) } else { (">", Ordering::Greater) };
    let mut best: Option<(Value, Value)> = None;
    for item in value.items()? {
        let key = getter.get(&item)?;
        let wins = match &best {
            Some((other, _)) => order(symbol, &key, other, 0)? == Some(better),
            None => true,
        };
        if wins {
            best = Some((key, item));
        }
    }
    let none = || Value::Undefined("No aggregated item, sequence was empty.".into());
    Ok(best.map_or_else(none, |(_, item)| item))
}

fn group(value: &Value, args: Args) -> Result<Value> {
    let names = ["attribute", "default", "case_sensitive"];
    let [attribute, otherwise, case_sensitive] = args.bind("groupby", names, 1)?;
    let shown = Getter::new(attribute.as_ref(), otherwise)?;
    let ignore_case = !flag(case_sensitive);
    let mut keyed = Vec::new();
    for item in value.items()? {
        let key = match shown.get(&item)? {
            Value::Str(text) if ignore_case => Value::str(text.to_lowercase()),
            other => other,
        };
        keyed.push((vec![key], item));
    }
    sort_by_keys(&mut keyed, false)?;
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for (mut key, item) in keyed {
        let key = key.remove(0);
        match groups.last_mut() {
            Some((other, items)) if crate::operators::equal(other, &key)? => items.push(item),
            _ => groups.push((key, vec![item])),
        }
    }
    let mut out = Vec::new();
    for (_, items) in groups {
        let name = shown.get(&items[0])?;
        out.push(Value::Tuple(Rc::new(Tuple { items: vec![name, Value::list(items)], group: true })));
    }
    Ok(Value::list(out))
}
