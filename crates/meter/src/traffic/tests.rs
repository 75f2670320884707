mod recount;
