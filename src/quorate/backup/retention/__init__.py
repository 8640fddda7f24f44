"""What a backup keeps: prunes, holds, orphans, small segments merged, a continuous backup kept small."""
