"""Chat clients that wrap chat clients: route, fail over, pool and meter LLM calls."""
