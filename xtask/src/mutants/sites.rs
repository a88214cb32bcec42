//! Where a small mistake can be made, and how it is put behind a switch.

use std::collections::HashSet;
use std::fs;
use std::ops::Range;
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Lit, Stmt};

/// A place and one mistake there.
#[derive(Clone, Debug)]
pub struct Site {
    /// The file, below the folder that was searched.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// Its bytes.
    pub bytes: Range<usize>,
    function: String,
    before: String,
    /// The text with the mistake; empty if a statement is left out.
    after: String,
    /// What stands around it on its line, if its own text says too little.
    around: (String, String),
}

impl Site {
    /// What it is called in the list of known ones: it does not move when lines do.
    pub fn name(&self) -> String {
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let whole = |text: &str| flat(&[&self.around.0, text, &self.around.1].concat());
        let after = if self.after.is_empty() { "nothing".into() } else { whole(&self.after) };
        format!("{} {}: `{}` -> `{after}`", self.file, self.function, whole(&self.before))
    }
    /// True if the two cannot be compiled together.
    pub fn overlaps(&self, other: &Site) -> bool {
        self.file == other.file && self.bytes.start < other.bytes.end && other.bytes.start < self.bytes.end
    }
    /// Both forms, and the switch between them.
    pub fn switched(&self, number: usize) -> String {
        match self.after.as_str() {
            "" => format!("if !crate::mutant::on({number}) {{ {} }}", self.before),
            after => format!("(if crate::mutant::on({number}) {{ {after} }} else {{ {} }})", self.before),
        }
    }
}

/// Every place in the files below `folder` whose path contains `only`, but for modules of tests.
pub fn find(folder: &Path, only: &str) -> Result<Vec<Site>, String> {
    let mut paths = Vec::new();
    collect(folder, &mut paths).map_err(|e| format!("{}: {e}", folder.display()))?;
    paths.sort();
    let (mut files, mut of_tests) = (Vec::new(), HashSet::new());
    for path in paths {
        let file = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        let text = fs::read_to_string(&path).map_err(|e| format!("{file}: {e}"))?;
        let tree = syn::parse_file(&text).map_err(|e| format!("{file}: {e}"))?;
        of_tests.extend(modules_of_tests(&file, &text, &tree));
        files.push((file, text, tree));
    }
    let mut sites = Vec::new();
    for (file, text, tree) in files {
        let is_test = of_tests.contains(&file)
            || file.contains("/tests/")
            || file.ends_with("tests.rs")
            || file.ends_with("testing.rs");
        if !is_test && file.contains(only) {
            let mut finder = Finder { file, text: &text, functions: Vec::new(), sites: Vec::new() };
            finder.visit_file(&tree);
            sites.append(&mut finder.sites);
        }
    }
    Ok(sites)
}

/// The files of the modules that `file` declares for tests alone.
fn modules_of_tests(file: &str, text: &str, tree: &syn::File) -> Vec<String> {
    let folder = match file.strip_suffix("mod.rs").or(file.strip_suffix("lib.rs")) {
        Some(folder) => folder.to_owned(),
        None => format!("{}/", file.trim_end_matches(".rs")),
    };
    let modules = tree.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() => Some(module),
        _ => None,
    });
    let for_tests = modules.filter(|module| module.attrs.iter().any(|a| is_about_tests(text, a)));
    for_tests.map(|module| format!("{folder}{}.rs", module.ident)).collect()
}

fn is_about_tests(text: &str, attribute: &syn::Attribute) -> bool {
    text[attribute.span().byte_range()].contains("test")
}

fn collect(folder: &Path, files: &mut Vec<std::path::PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

struct Finder<'t> {
    file: String,
    text: &'t str,
    functions: Vec<String>,
    sites: Vec<Site>,
}

/// What says how things look and verifies them is not what decides about packets.
const PASSED_OVER: &[&str] = &["fmt", "check", "is_sound", "visit_stats"];

impl Finder<'_> {
    fn source(&self, of: &impl Spanned) -> String {
        self.text[of.span().byte_range()].to_owned()
    }
    fn add(&mut self, at: &impl Spanned, after: String) {
        // Outside functions everything is a constant.
        let Some(function) = self.functions.last().cloned() else { return };
        let (bytes, line) = (at.span().byte_range(), at.span().start().line);
        let (file, before) = (self.file.clone(), self.source(at));
        // A number alone is no name: a function may have it twice.
        let around = match before.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            true => {
                let (left, right) = (&self.text[..bytes.start], &self.text[bytes.end..]);
                let left = left.rsplit('\n').next().unwrap_or_default();
                (left.to_owned(), right.split('\n').next().unwrap_or_default().to_owned())
            }
            false => (String::new(), String::new()),
        };
        self.sites.push(Site { file, line, bytes, function, before, after, around });
    }
    fn within(
        &mut self,
        name: String,
        attributes: &[syn::Attribute],
        constant: bool,
        inside: impl FnOnce(&mut Self),
    ) {
        let is_test = attributes
            .iter()
            .any(|a| is_about_tests(self.text, a) || self.source(a).contains("debug_assertions"));
        if is_test || constant || PASSED_OVER.contains(&name.as_str()) {
            return;
        }
        self.functions.push(name);
        inside(self);
        self.functions.pop();
    }
}

/// The operator that somebody could have written instead.
fn instead(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::Lt(_) => "<=",
        BinOp::Le(_) => "<",
        BinOp::Gt(_) => ">=",
        BinOp::Ge(_) => ">",
        BinOp::Eq(_) => "!=",
        BinOp::Ne(_) => "==",
        BinOp::Add(_) => "-",
        BinOp::Sub(_) => "+",
        BinOp::Mul(_) => "+",
        BinOp::Div(_) => "*",
        BinOp::Rem(_) => "/",
        BinOp::And(_) => "||",
        BinOp::Or(_) => "&&",
        BinOp::BitAnd(_) => "|",
        BinOp::BitOr(_) | BinOp::BitXor(_) => "&",
        BinOp::Shl(_) => ">>",
        BinOp::Shr(_) => "<<",
        BinOp::AddAssign(_) => "-=",
        BinOp::SubAssign(_) => "+=",
        BinOp::BitOrAssign(_) | BinOp::BitXorAssign(_) => "&=",
        BinOp::BitAndAssign(_) => "|=",
        _ => return None,
    })
}

/// A condition that binds a name cannot be moved into a switch.
fn binds(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(b) => binds(&b.left) || binds(&b.right),
        Expr::Paren(p) => binds(&p.expr),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !item.attrs.iter().any(|a| is_about_tests(self.text, a)) {
            visit::visit_item_mod(self, item);
        }
    }
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let constant = item.sig.constness.is_some();
        self.within(item.sig.ident.to_string(), &item.attrs, constant, |f| f.visit_block(&item.block));
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let constant = item.sig.constness.is_some();
        self.within(item.sig.ident.to_string(), &item.attrs, constant, |f| f.visit_block(&item.block));
    }
    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.within(item.sig.ident.to_string(), &item.attrs, false, |f| f.visit_block(block));
        }
    }
    // Constants are not computed when the program runs.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        if let Stmt::Expr(expr, Some(_)) = stmt {
            let act = match expr {
                Expr::Try(attempt) => &attempt.expr,
                expr => expr,
            };
            let compound =
                matches!(act, Expr::Binary(b) if instead(&b.op).is_some_and(|op| op.ends_with('=')));
            if matches!(act, Expr::MethodCall(_) | Expr::Call(_) | Expr::Assign(_)) || compound {
                self.add(stmt, String::new());
            }
        }
        visit::visit_stmt(self, stmt);
    }
    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !field.attrs.iter().any(|a| is_about_tests(self.text, a)) {
            visit::visit_field_value(self, field);
        }
    }
    fn visit_expr_block(&mut self, block: &'ast syn::ExprBlock) {
        if !block.attrs.iter().any(|a| is_about_tests(self.text, a)) {
            visit::visit_expr_block(self, block);
        }
    }
    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if let Some(op) = instead(&binary.op)
            && !binds(&binary.left)
            && !binds(&binary.right)
        {
            self.add(binary, format!("{} {op} {}", self.source(&binary.left), self.source(&binary.right)));
        }
        visit::visit_expr_binary(self, binary);
    }
    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if matches!(unary.op, syn::UnOp::Not(_)) {
            self.add(unary, self.source(&unary.expr));
        }
        visit::visit_expr_unary(self, unary);
    }
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let other = match call.method.to_string().as_str() {
            "min" => Some("max"),
            "max" => Some("min"),
            "is_some" => Some("is_none"),
            "is_none" => Some("is_some"),
            "floor" => Some("ceil"),
            "ceil" => Some("floor"),
            "push_back" => Some("push_front"),
            "pop_front" => Some("pop_back"),
            _ => None,
        };
        if let Some(other) = other {
            let (whole, method) = (call.span().byte_range(), call.method.span().byte_range());
            let text = self.text;
            let after = [&text[whole.start..method.start], other, &text[method.end..whole.end]].concat();
            self.add(call, after);
        }
        visit::visit_expr_method_call(self, call);
    }
    fn visit_expr_lit(&mut self, literal: &'ast syn::ExprLit) {
        match &literal.lit {
            Lit::Bool(b) => self.add(literal, (!b.value).to_string()),
            Lit::Int(n) => {
                if let Ok(value) = n.base10_parse::<u64>() {
                    self.add(literal, format!("{}{}", value.wrapping_add(1), n.suffix()));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_named_by_its_line() {
        let text = "fn f(mut n: u32) -> u32 {\n    n += 1;\n    n - 1\n}\n";
        let tree = syn::parse_file(text).expect("Rust");
        let mut finder = Finder { file: "f.rs".into(), text, functions: Vec::new(), sites: Vec::new() };
        finder.visit_file(&tree);
        let names: Vec<String> = finder.sites.iter().map(Site::name).collect();
        for name in
            ["`n += 1;` -> `n += 2;`", "`n - 1` -> `n - 2`", "`n += 1;` -> `nothing`", "`n - 1` -> `n + 1`"]
        {
            assert!(names.contains(&format!("f.rs f: {name}")), "{name}: {names:?}");
        }
    }

    #[test]
    fn what_only_tests_count_is_no_place_for_mistakes() {
        let text =
            "fn f() -> S {\n    S {\n        kept: 1,\n        #[cfg(test)]\n        counted: 2,\n    }\n}\n";
        let tree = syn::parse_file(text).expect("Rust");
        let mut finder = Finder { file: "f.rs".into(), text, functions: Vec::new(), sites: Vec::new() };
        finder.visit_file(&tree);
        let names: Vec<String> = finder.sites.iter().map(Site::name).collect();
        assert_eq!(names, ["f.rs f: `kept: 1,` -> `kept: 2,`"]);
    }

    #[test]
    fn modules_of_tests_are_no_place_for_mistakes() {
        let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/weir-core/src");
        let sites = find(&core, "").expect("weir-core is Rust");
        let has = |file: &str| sites.iter().any(|site| site.file == file);
        for file in ["sched/cbq/link_sharing.rs", "sched/hfsc/share.rs", "packet/list.rs"] {
            assert!(has(file), "{file}");
        }
        for file in [
            "sched/cbq/law.rs",
            "sched/testing.rs",
            "packet/dissect/tests.rs",
            "aqm/red_tests.rs",
            "sched/jobs/tests/arithmetic.rs",
        ] {
            assert!(core.join(file).exists() && !has(file), "{file}");
        }
    }
}
