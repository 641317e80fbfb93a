"""What all answers share: routes and errors, sessions, the index, experiments to launch."""
