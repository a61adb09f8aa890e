//! What a template is made of. It can be shared by threads.

use std::sync::Arc;

/// A name's number in the template.
pub type Name = u32;

#[derive(Clone)]
pub enum Constant {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}

pub enum Expr {
    Constant(Constant),
    Name(Name),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    /// Signs ('-' or '+'), of which the last is applied first.
    Signs(Vec<char>, Box<Expr>),
    Not(Box<Expr>),
    /// From left to right.
    Binary(Box<Expr>, Vec<(Binary, Expr)>),
    Concat(Vec<Expr>),
    Compare(Box<Expr>, Vec<(Compare, Expr)>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    /// Condition, value, and otherwise.
    Conditional(Box<(Expr, Expr, Option<Expr>)>),
    Attribute(Box<Expr>, Arc<str>),
    Item(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Box<[Option<Expr>; 3]>),
    Call(Box<Expr>, Arguments),
    /// Without a value: of a block's text.
    Filter(Option<Box<Expr>>, Arc<str>, Arguments),
    Test(Box<Expr>, Arc<str>, Arguments),
}

#[derive(Default)]
pub struct Arguments {
    pub list: Vec<Expr>,
    pub named: Vec<(Arc<str>, Expr)>,
    /// `*list` and `**dict`.
    pub more: Option<Box<Expr>>,
    pub more_named: Option<Box<Expr>>,
}

pub enum Target {
    Name(Name),
    /// Of a namespace.
    Attribute(Name, Arc<str>),
    Tuple(Vec<Target>),
}

pub struct Statement {
    pub line: u32,
    pub kind: Kind,
}

pub type Body = Vec<Statement>;

pub enum Kind {
    Text(Arc<str>),
    Print(Vec<Expr>),
    If(Vec<(Expr, Body)>, Body),
    For(Arc<For>),
    Set(Target, Expr),
    /// With a filter of the body's text.
    SetBody(Target, Option<Expr>, Body),
    FilterBody(Expr, Body),
    With(Vec<(Target, Expr)>, Body),
    Macro(Arc<MacroCode>),
    /// The callee's call, and what it gets as `caller`.
    CallBody(Expr, Arc<MacroCode>),
    Block(Body),
    Generation(Body),
    Break,
    Continue,
}

pub struct For {
    pub target: Target,
    pub list: Expr,
    pub test: Option<Expr>,
    pub body: Body,
    pub otherwise: Body,
    pub recursive: bool,
    /// The body names `loop`.
    pub uses_loop: bool,
}

pub struct MacroCode {
    pub name: Arc<str>,
    /// Defaults are of the last ones.
    pub parameters: Vec<Name>,
    pub names: Vec<Arc<str>>,
    pub defaults: Vec<Expr>,
    pub body: Body,
    pub uses_varargs: bool,
    pub uses_kwargs: bool,
    pub uses_caller: bool,
}

pub struct Program {
    pub body: Body,
    /// Names by their numbers.
    pub names: Vec<Arc<str>>,
    /// Has `{% generation %}` blocks.
    pub marks: bool,
}
