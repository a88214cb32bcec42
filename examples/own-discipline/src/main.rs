//! The whole command `weir`, with the disciplines and the AQM of this crate.

fn main() -> std::process::ExitCode {
    let mut registry = weir_core::sched::Registry::builtin();
    registry.register(own_discipline::ENTRY);
    registry.register(own_discipline::edf::ENTRY);
    registry.register_aqm(own_discipline::choke::ENTRY);
    weir::main_with(registry)
}
