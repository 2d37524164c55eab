mod accuracy;
mod exact;
mod machine;
