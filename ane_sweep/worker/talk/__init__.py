"""The worker of a session: the model's tokenizer, its predictions one by one, and the channel to the planner's side."""
