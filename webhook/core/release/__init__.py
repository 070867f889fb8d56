"""From waiting to charged: who starts by the queue, limits and room, and why the others wait."""
