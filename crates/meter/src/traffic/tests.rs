mod recount;
mod shape;
