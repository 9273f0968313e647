"""BERT in torch: a model that embeds whole prompts and generates nothing."""
