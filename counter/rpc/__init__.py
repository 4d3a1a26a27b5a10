"""What every gRPC server of Tally shares: statuses, health, reflection, limits."""
