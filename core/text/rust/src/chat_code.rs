//! Chat templates as instructions of the template engine, with a look at the call's budget before each instruction
//! whose work grows with its operands.
//!
//! The allocator bounds what a template builds. What it compares, searches or counts allocates nothing, and a template of
//! 256 KiB can do so ten thousand times with texts of megabytes, without a loop. So a call of `CHECK` goes in front.

use std::collections::BTreeMap;

use minijinja::machinery::{make_string_output, CompiledTemplate, Instruction, Instructions, TemplateConfig};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

use crate::budget;

/// No name of a variable in a template: it has a space.
const CHECK: &str = "plait check";

/// What `render` needs of an environment.
pub fn prepare(env: &mut Environment<'static>) {
    env.add_function(CHECK, || {
        if budget::check() {
            Ok(Value::UNDEFINED)
        } else {
            Err(Error::new(ErrorKind::OutOfFuel, "the time is over"))
        }
    });
}

/// A compiled template. It owns its texts, which `code` points into.
pub struct ChatCode {
    /// Declared first, dropped first.
    code: CompiledTemplate<'static>,
    _texts: (Box<str>, Box<str>),
}

impl ChatCode {
    pub fn compile(name: &str, source: &str, config: &TemplateConfig) -> Result<Self, Error> {
        let texts: (Box<str>, Box<str>) = (name.into(), source.into());
        // SAFETY: the boxes' contents stay where they are for as long as `code` lives, and nothing else gives out
        // references to them.
        let (name, source): (&'static str, &'static str) =
            unsafe { (&*std::ptr::from_ref(&*texts.0), &*std::ptr::from_ref(&*texts.1)) };
        let mut code = CompiledTemplate::new(name, source, config)?;
        code.instructions = with_checks(&code.instructions);
        code.blocks = code.blocks.iter().map(|(name, code)| (*name, with_checks(code))).collect::<BTreeMap<_, _>>();
        Ok(Self { code, _texts: texts })
    }

    pub fn render(&self, env: &Environment<'static>, variables: Value) -> Result<String, Error> {
        let mut text = String::new();
        let mut out = make_string_output(&mut text);
        let code = &self.code;
        minijinja::machinery::eval(env, &code.instructions, variables, &code.blocks, &mut out, AutoEscape::None)?;
        drop(out);
        Ok(text)
    }
}

/// Whether an instruction takes time that grows with its operands.
fn grows(instruction: &Instruction) -> bool {
    use Instruction as I;
    matches!(
        instruction,
        I::Add
            | I::Mul
            | I::StringConcat
            | I::Slice
            | I::GetItem
            | I::In
            | I::Eq
            | I::Ne
            | I::Gt
            | I::Gte
            | I::Lt
            | I::Lte
            | I::CompareAndPreserve(_)
            | I::Iterate(_)
            | I::Emit
            | I::ApplyFilter(..)
            | I::PerformTest(..)
            | I::CallFunction(..)
            | I::CallMethod(..)
            | I::CallObject(_)
    )
}

/// The same instructions with checks, and jumps to where their targets are now.
fn with_checks(code: &Instructions<'static>) -> Instructions<'static> {
    let mut out = Instructions::new(code.name(), code.source());
    let mut places = Vec::new();
    let mut end = 0;
    for at in 0.. {
        places.push(end);
        let Some(instruction) = code.get(at) else { break };
        let mut add = |instruction| {
            end = 1 + match code.get_span(at) {
                Some(span) => out.add_with_span(instruction, span),
                None => out.add_with_line(instruction, code.get_line(at).unwrap_or(1) as u16),
            };
        };
        if grows(instruction) {
            add(Instruction::CallFunction(CHECK, Some(0)));
            add(Instruction::DiscardTop);
        }
        add(instruction.clone());
    }
    for at in 0..end {
        if let Some(target) = out.get_mut(at).and_then(target_of) {
            *target = places[*target as usize];
        }
    }
    out
}

fn target_of<'a>(instruction: &'a mut Instruction<'static>) -> Option<&'a mut u32> {
    use Instruction as I;
    match instruction {
        I::Iterate(target)
        | I::Jump(target)
        | I::JumpIfFalse(target)
        | I::JumpIfFalseOrPop(target)
        | I::JumpIfTrueOrPop(target)
        | I::BuildMacro(_, target, _) => Some(target),
        _ => None,
    }
}
